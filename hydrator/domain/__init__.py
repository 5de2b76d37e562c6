"""TODO: the package hydrator/domain."""
