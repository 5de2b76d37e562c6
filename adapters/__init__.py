"""The edges: each module here keeps a promise of ``hydrator.ports`` towards one outside system."""
