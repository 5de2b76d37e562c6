"""``hydrator submit rapthor``: the command, its checks, and its outputs."""
