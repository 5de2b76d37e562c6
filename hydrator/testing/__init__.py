"""TODO: the package hydrator/testing."""
