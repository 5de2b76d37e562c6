"""DESIRED_Sites of queued jobs, schedd by schedd: one that hangs costs only its own answer."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hydrator.domain.model import Unseen
from hydrator.domain.ports import JobGroup, SavedDesiredSites

from . import CondorClient
from .schedd_rounds import ScheddPoller


class ScheddJobSites:
    """Keeps ``JobSites``. Its *client* is none that a cycle waits for, and ends with it."""

    def __init__(self, client: CondorClient) -> None:
        self._client = client
        self._rounds = ScheddPoller(client)

    def read_job_groups(self) -> Mapping[str, Sequence[JobGroup] | Unseen]:
        """See :class:`hydrator.domain.ports.JobSites`."""
        return self._rounds.ask(
            lambda client, schedd: [_build_job_group(row) for row in client.read_job_groups(schedd)]
        )

    def set_desired_sites(
        self,
        schedd: str,
        group: JobGroup,
        value: str | None,
        original_value: str | None,
        *,
        should_keep_mark: bool,
        max_jobs: int,
    ) -> int:
        """See :class:`hydrator.domain.ports.JobSites`."""
        return self._client.set_desired_sites(
            schedd, asdict(group), value, original_value, keep=should_keep_mark, max_jobs=max_jobs
        )

    def close(self) -> None:
        """End the client, also under a call."""
        self._client.close()


def _build_job_group(row: Mapping[str, Any]) -> JobGroup:
    kept = SavedDesiredSites(**row["kept"]) if row["kept"] else None
    return JobGroup(**{**row, "kept": kept, "datasets": tuple(row["datasets"])})
