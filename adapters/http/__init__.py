"""TODO: the package adapters/http."""
