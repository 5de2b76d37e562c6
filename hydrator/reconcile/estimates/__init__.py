"""Estimates: the seconds until a job could have read its data, and until a slot beside its data is free."""
