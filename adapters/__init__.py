"""Adapters: each module implements a port of ``hydrator.domain.ports`` for one outside system."""
