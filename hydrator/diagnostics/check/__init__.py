"""hydrator check: examinations of an installation."""
