"""Attributes of the ads: literals, keys of dataset sets, estimates, and the versions of the contract."""
