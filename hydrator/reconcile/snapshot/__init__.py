"""Readings to facts: one state for every dataset and site, each with its age."""
