"""Polls: query catalogues and schedds in threads, and check their answers."""
