"""Typed models of the values that ``--json`` prints: a contract that tests check and the docs show.

docs/reference/commands.md lists the keys. A new version may add keys.
"""
