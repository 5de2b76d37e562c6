"""Attributes of the ads: literals, keys of dataset sets, openings, and the versions of the contract."""
