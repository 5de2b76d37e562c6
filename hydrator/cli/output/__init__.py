"""TODO: the package hydrator/cli/output."""
