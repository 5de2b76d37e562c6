"""Resources of the extension."""
