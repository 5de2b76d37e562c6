"""TODO: the package hydrator/server/pages."""
