"""Expensive verification: trust in catalogues, and corrections of their answers."""
