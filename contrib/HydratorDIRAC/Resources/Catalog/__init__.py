"""Catalogue plug-ins."""
