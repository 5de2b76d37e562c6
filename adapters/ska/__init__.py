"""SKA services: DMAPI and site capabilities."""
