"""Limits on hosts, connections and request rates."""
