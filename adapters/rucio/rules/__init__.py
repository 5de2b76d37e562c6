"""Rucio's rules and locks, and the movements that they cause."""
