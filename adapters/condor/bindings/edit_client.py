"""Calls that edit queued jobs, made in the child process."""

from collections.abc import Mapping
from typing import Any

from .process import ProcessClient
from .values import Ad


class JobEditClient(ProcessClient):
    """Edits of queued jobs, and the queries that these edits need."""

    def release(self, schedd: str, constraint: str = "true") -> int:
        """Release queued jobs from their data: they may run anywhere. Return the number of these jobs.

        The job transform bound the jobs to their data by Requirements that refer to DataLocalityHere. Set
        this attribute to true and read it back. Raise PoolDenied if a job stayed unchanged; the call may
        have released other jobs before.
        """
        return int(self._call("release", schedd=schedd, constraint=constraint))

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

    def restore_desired_sites(self, schedd: str, constraint: str = "true", *, should_opt_out: bool) -> int:
        """Restore the original DESIRED_Sites of queued jobs, and remove the daemon's marks.

        With *should_opt_out*, also opt the jobs out, so that the daemon never sets their DESIRED_Sites
        again. Return the number of jobs. Raise PoolDenied if a job stayed unchanged.
        """
        args = {"schedd": schedd, "constraint": constraint, "should_opt_out": should_opt_out}
        return int(self._call("restore_desired_sites", **args))
