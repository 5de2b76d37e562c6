"""DIRAC extension with one catalogue plug-in, HydratorCatalog."""


def extension_metadata():
    """Return what DIRAC needs to know; DIRAC searches extensions with a higher priority first."""
    return {"priority": 5, "setups": {}, "default_setup": ""}
