"""State that survives a restart: sqlite and command files."""
