"""``hydrator submit rapthor``: the command, its checks, and one module for each kind of output."""
