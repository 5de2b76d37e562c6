"""TODO: the package adapters/rucio/session."""
