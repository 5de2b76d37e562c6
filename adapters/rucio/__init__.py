"""Rucio: the catalogue, and its queries."""
