"""TODO: the package hydrator/privacy."""
