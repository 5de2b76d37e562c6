"""TODO: the package hydrator/state."""
