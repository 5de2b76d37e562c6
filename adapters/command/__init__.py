"""Commands of the operator: a stager."""
