"""Test kit for authors of catalogue plugins."""
