"""The commands that are more than a few lines; cli.py registers them."""
