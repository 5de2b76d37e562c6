"""Connections to a Rucio server: login, rate limit, bounded answers."""
