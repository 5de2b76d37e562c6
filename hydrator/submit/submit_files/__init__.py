"""Submit descriptions and DAG files: read them, add datasets, and escape users' texts in them."""
