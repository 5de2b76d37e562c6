"""Typed models of the values that ``--json`` prints: a contract that tests check and the docs show.

The text below a key explains the key. ``json_schema.py`` derives the JSON Schema of each command from
these models. A new version may add keys. The CHANGELOG lists renamed and removed keys.
"""
