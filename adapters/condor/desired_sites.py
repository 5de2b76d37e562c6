"""DESIRED_Sites of queued jobs, schedd by schedd: one that hangs costs only its own answer."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hydrator.domain.model import Unseen
from hydrator.domain.ports import AlikeJobs, Kept

from . import CondorClient
from .schedd_rounds import Rounds


class ScheddJobSites:
    """Keeps ``JobSites``. Its *client* is none that a cycle waits for, and ends with it."""

    def __init__(self, client: CondorClient) -> None:
        self._client = client
        self._rounds = Rounds(client)

    def alike(self) -> Mapping[str, Sequence[AlikeJobs] | Unseen]:
        """See :class:`hydrator.domain.ports.JobSites`."""
        return self._rounds.ask(lambda client, schedd: [_jobs(row) for row in client.alike_jobs(schedd)])

    def place(
        self, schedd: str, jobs: AlikeJobs, value: str | None, own: str | None, *, keep: bool, at_most: int
    ) -> int:
        """See :class:`hydrator.domain.ports.JobSites`."""
        return self._client.place_jobs(schedd, asdict(jobs), value, own, keep=keep, at_most=at_most)

    def close(self) -> None:
        """End the client, also under a call."""
        self._client.close()


def _jobs(row: Mapping[str, Any]) -> AlikeJobs:
    kept = Kept(**row["kept"]) if row["kept"] else None
    return AlikeJobs(**{**row, "kept": kept, "datasets": tuple(row["datasets"])})
