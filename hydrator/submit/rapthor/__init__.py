"""Rapthor: read its parset, write its job."""
