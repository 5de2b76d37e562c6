"""The submit companion: configuration of pools, submit files, DAGs and Rapthor jobs."""
