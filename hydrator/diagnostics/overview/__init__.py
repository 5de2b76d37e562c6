"""Overview of the running daemon: what the page shows. Pure."""
