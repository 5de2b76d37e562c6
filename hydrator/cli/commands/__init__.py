"""One module for each command of more than a few lines; cli/app.py registers them."""
