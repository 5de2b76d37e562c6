"""Calls that edit queued jobs, made in the child process."""

from collections.abc import Mapping
from typing import Any

from .process import ProcessClient
from .values import Ad


class JobEditClient(ProcessClient):
    """Edits of queued jobs, and the queries that these edits need."""

    def read_constraint_names(self, constraint: str) -> list[str]:
        """Return the attributes of jobs that *constraint* refers to.

        Raise ConfigError if the constraint is no expression or asks nothing of a job, such as a number.
        """
        return list(self._call("read_constraint_names", constraint=constraint))

    def has_queued_job(self, schedd: str, constraint: str) -> bool:
        """Return True if a queued job of *schedd* matches *constraint*."""
        return bool(self._call("has_queued_job", schedd=schedd, constraint=constraint))

    def run_anywhere(self, schedd: str, constraint: str | None) -> int:
        """Free queued jobs from their data: they may run anywhere. Return the number of these jobs.

        *constraint* selects the jobs; None is every job. A constraint that asks nothing of a job is refused.

        The job transform bound the jobs to their data by Requirements that refer to DataLocalityHere. Set
        this attribute to true and read it back. Raise PoolDenied if a job stayed unchanged; the call may
        have freed other jobs before.
        """
        return int(self._call("run_anywhere", schedd=schedd, constraint=constraint))

    def read_job_groups(self, schedd: str) -> list[Ad]:
        """Return groups of idle jobs that opted in to edits of DESIRED_Sites, or have a mark of such an edit.

        Alike jobs of *schedd* share one row.
        The row has the fields of :class:`hydrator.domain.pool_ports.JobGroup`;
        its ``kept`` has the fields of :class:`hydrator.domain.pool_ports.SavedDesiredSites`.
        """
        return list(self._call("read_job_groups", schedd=schedd))

    def set_desired_sites(
        self,
        schedd: str,
        row: Mapping[str, Any],
        value: str | None,
        original_value: str | None,
        *,
        keep: bool,
        max_jobs: int,
    ) -> int:
        """Set DESIRED_Sites of the jobs in a *row* of :meth:`read_job_groups`.

        See :class:`hydrator.domain.pool_ports.JobSites`.
        """
        count = self._call(
            "set_desired_sites",
            schedd=schedd,
            row=row,
            value=value,
            original_value=original_value,
            keep=keep,
            max_jobs=max_jobs,
        )
        return int(count)

    def restore_desired_sites(
        self, schedd: str, constraint: str | None = None, *, should_opt_out: bool
    ) -> int:
        """Restore the original DESIRED_Sites of queued jobs, and remove the daemon's marks.

        *constraint* selects the jobs, as in :meth:`run_anywhere`.
        With *should_opt_out*, also opt the jobs out, so that the daemon never sets their DESIRED_Sites
        again. Return the number of jobs. Raise PoolDenied if a job stayed unchanged.
        """
        args = {"schedd": schedd, "constraint": constraint, "should_opt_out": should_opt_out}
        return int(self._call("restore_desired_sites", **args))
