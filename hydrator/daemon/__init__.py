"""TODO: the package hydrator/daemon."""
