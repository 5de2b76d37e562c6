"""The edges: each module here keeps a promise of ``hydrator.domain.ports`` towards one outside system."""
