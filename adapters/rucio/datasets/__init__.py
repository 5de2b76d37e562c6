"""Rucio's datasets: their names, files and unions."""
