"""Overview of the running daemon: what the page and ``hydrator top`` show. Pure."""
