"""Facts to site ads, within the size budget."""
