"""Polls of catalogues: in threads, with checked answers."""
