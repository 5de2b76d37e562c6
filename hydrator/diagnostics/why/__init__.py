"""TODO: the package hydrator/diagnostics/why."""
