"""Pseudonyms of private datasets."""
