"""Snapshot: turn the readings of catalogues into one state for every dataset and site, with its age."""
