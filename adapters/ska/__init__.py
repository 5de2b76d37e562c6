"""TODO: the package adapters/ska."""
