"""Typed models of the values that ``--json`` prints: a contract that tests check and the docs show.

The text below a key is its meaning. ``json_schema.py`` derives the JSON Schema of each command from
these models. Keys are added; none is renamed or removed without a line in the CHANGELOG.
"""
