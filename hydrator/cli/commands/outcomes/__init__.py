"""``hydrator report`` and ``hydrator replay``: results of jobs, and of policies that a replay tries."""
