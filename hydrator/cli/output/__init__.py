"""Output of the commands: rows, tables, JSON schemas and the manual page."""
