"""``hydrator why``: the reasons why a job is idle."""
