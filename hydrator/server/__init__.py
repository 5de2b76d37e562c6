"""TODO: the package hydrator/server."""
