"""HTTP API and pages."""
