"""TODO: the package hydrator/diagnostics."""
