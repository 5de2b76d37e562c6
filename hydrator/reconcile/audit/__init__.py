"""Audit: verify a few claims of catalogues by expensive queries; compute trust and corrections."""
