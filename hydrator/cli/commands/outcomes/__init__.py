"""``hydrator report``: results of jobs."""
