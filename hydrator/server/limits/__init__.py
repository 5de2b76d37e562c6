"""TODO: the package hydrator/server/limits."""
