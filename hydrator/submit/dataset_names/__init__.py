"""Dataset names: the DIDs of the measurement sets that users' files name."""
