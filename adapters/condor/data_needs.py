"""Data needs: the jobs of all schedds that name datasets, and the sites that match the rest of idle jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site, Unseen, from_unix
from hydrator.domain.ports import Clock
from hydrator.domain.ports.data_needs import DataNeed
from hydrator.domain.untrusted import MAX_UNIX_SECONDS, valid_integer

from .bindings.client import QueueClient
from .schedd_rounds import SiteRounds
from .slot_ads import NOT_DYNAMIC_SLOT

MAX_GROUPS = 100
"""Groups of alike idle jobs of one schedd whose match is evaluated, in turns of the users."""
_MAX_JOBS = 10**7


class ScheddNeeds(SiteRounds):
    """A ``DataNeeds`` port: query the jobs of each schedd, and evaluate the idle ones against all slots."""

    def read_needs(self) -> Mapping[str, Sequence[DataNeed] | Unseen]:
        """See :class:`hydrator.domain.ports.data_needs.DataNeeds`."""

        def query(client: QueueClient, schedd: str) -> Mapping[str, Any]:
            return client.read_data_needs(schedd, self._site_attributes, MAX_GROUPS)

        answers = self.ask(query)
        matches = self._evaluate_matches(answers)
        sites_by_slot = self._sites_by_slot(answers)
        return {
            schedd: answer
            if isinstance(answer, Unseen)
            else (
                *(self._parse_idle(row, matches.get((schedd, row["example"]))) for row in answer["idle"]),
                *(_parse_running(row, sites_by_slot, self._clock) for row in answer["running"]),
            )
            for schedd, answer in answers.items()
        }

    def _evaluate_matches(
        self, answers: Mapping[str, Mapping[str, Any] | Unseen]
    ) -> dict[tuple[str, str], Mapping[str, Any]]:
        """Return the match of the first job of each idle row, by schedd and job; none if it is unknown."""
        jobs = [
            (schedd, row)
            for schedd, answer in answers.items()
            if not isinstance(answer, Unseen)
            for row in answer["idle"]
            if row["ad"] is not None
        ]
        if not jobs:
            return {}
        try:
            rows = self._collector.evaluate_sites([row["ad"] for _, row in jobs], self._site_attributes)
        except PoolError:
            return {}  # the sites are unknown: nothing is requested for these jobs
        return {(schedd, job["example"]): row for (schedd, job), row in zip(jobs, rows, strict=True)}

    def _sites_by_slot(self, answers: Mapping[str, Mapping[str, Any] | Unseen]) -> dict[str, Site]:
        """Return the site of each slot, if a running job's schedd did not record it."""
        rows = [row for each in answers.values() if not isinstance(each, Unseen) for row in each["running"]]
        if all(row["site"] for row in rows):
            return {}
        return self._read_sites_by_slot(NOT_DYNAMIC_SLOT)

    def _parse_idle(self, row: Mapping[str, Any], match: Mapping[str, Any] | None) -> DataNeed:
        now = self._clock()
        since = valid_integer(row["since"], MAX_UNIX_SECONDS)
        sites = None if match is None else frozenset(Site(str(site)) for site in match["sites"])
        return DataNeed(
            tuple(row["datasets"]),
            min(max(1, valid_integer(row["job_count"]) or 1), _MAX_JOBS),
            row["user"],
            row["example"],
            min(now, from_unix(since)) if since is not None else now,
            matching_sites=sites,
            is_data_missing=_is_data_missing(row, match),
        )


def _is_data_missing(row: Mapping[str, Any], match: Mapping[str, Any] | None) -> bool | None:
    """Return whether the jobs of *row* wait for nothing but data; held jobs wait for a person."""
    if row["is_held"]:
        return False
    return None if match is None else bool(match["sites"]) and not match["matches_now"]


def _parse_running(row: Mapping[str, Any], sites_by_slot: Mapping[str, Site], clock: Clock) -> DataNeed:
    times = [at for each in row["started_at"] if (at := valid_integer(each, MAX_UNIX_SECONDS)) is not None]
    site = Site(row["site"]) if row["site"] else sites_by_slot.get(row["slot"] or "")
    return DataNeed(
        tuple(row["datasets"]),
        max(1, len(row["started_at"])),
        row["user"],
        "",
        from_unix(max(times)) if times else clock(),
        is_running=True,
        running_site=site,
    )
