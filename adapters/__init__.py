"""Adapters: each module implements a port of ``hydrator.domain`` for one outside system."""
