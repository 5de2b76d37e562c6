"""TODO: the package hydrator/submit."""
