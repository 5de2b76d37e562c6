"""Rucio: catalogue, auditor, and the calls that they share."""
