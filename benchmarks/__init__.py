"""Measurements of what this project costs and how fast it is; ``python -m benchmarks`` runs them."""
