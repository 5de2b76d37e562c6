"""Values that ``--json`` prints, as typed models: a contract that tests keep and the docs show.

The text below a key is its meaning. ``json_schema.py`` derives the JSON Schema of each command from
these models. Keys are added; none is renamed or removed without a line in the CHANGELOG.
"""
