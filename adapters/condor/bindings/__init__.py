"""TODO: the package adapters/condor/bindings."""
