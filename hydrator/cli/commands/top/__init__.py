"""``hydrator top``: the daemon's health, plots and sites in a terminal."""
