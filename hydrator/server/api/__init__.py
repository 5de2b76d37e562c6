"""HTTP API for programs: types, queries, and rows of the answers."""
