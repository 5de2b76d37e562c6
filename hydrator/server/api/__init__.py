"""HTTP API for programs: types, OpenAPI document, queries, and rows of the answers."""
