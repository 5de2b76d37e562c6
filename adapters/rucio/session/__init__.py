"""Connections to a Rucio server: login, limits on the rate of calls, and limits on the size of answers."""
