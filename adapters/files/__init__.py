"""TODO: the package adapters/files."""
