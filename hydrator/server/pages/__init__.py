"""HTML pages of the daemon."""
