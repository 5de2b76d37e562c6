"""TODO: the package adapters/rucio/rules."""
