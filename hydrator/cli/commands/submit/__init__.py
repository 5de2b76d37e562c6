"""Commands that prepare jobs and pools."""
