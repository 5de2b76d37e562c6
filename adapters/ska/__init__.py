"""SKA services: DMAPI and Site Capabilities."""
