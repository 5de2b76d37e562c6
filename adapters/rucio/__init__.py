"""Rucio: the catalogue, the auditor, and the queries that both use."""
