"""Catalogues and publishers in files and folders."""
