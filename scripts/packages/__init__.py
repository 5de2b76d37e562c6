"""Packages for Debian and Enterprise Linux: ``make packages`` writes them to ``dist/packages``."""
