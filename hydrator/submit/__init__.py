"""Submit files: pool configuration, submit descriptions, DAG files and Rapthor jobs."""
