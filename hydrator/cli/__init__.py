"""TODO: the package hydrator/cli."""
