"""TODO: the package adapters/rucio/datasets."""
