"""TODO: the package adapters/stomp."""
