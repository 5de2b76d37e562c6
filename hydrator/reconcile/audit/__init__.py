"""Audit: verify a few claims of catalogues expensively; keep trust and corrections."""
