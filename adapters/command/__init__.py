"""Commands of the operator: a probe of the storage, and a stager."""
