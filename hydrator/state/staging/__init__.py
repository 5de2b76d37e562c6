"""State of staging: the ledger in the database, and the operator's switch and commands as files."""
