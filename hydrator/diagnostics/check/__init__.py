"""TODO: the package hydrator/diagnostics/check."""
