"""HTTP API for programs: its types, its description, its queries and its rows."""
