"""Rucio's datasets: their names, their files, and unions of their files at several storage elements."""
