"""TODO: the package adapters/rucio."""
