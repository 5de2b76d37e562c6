"""hydrator why: reasons for which a job is idle."""
