"""Keeping ``DESIRED_Sites`` on queued jobs: looks, has the core decide, and edits at its own pace."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import Counter as Count

from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site, SiteAd, Unseen
from hydrator.domain.ports import AlikeJobs, Clock, JobSites
from hydrator.reconcile.ads.site_ads import facts_of

from .decide import Change, Known, Stand, wish

_log = structlog.get_logger("hydrator")
AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Placed:
    """What one turn came to at one schedd: jobs by how they stand, how many were edited, why it ended early.

    ``apart`` is a job none of whose own sites has its data.
    """

    stands: Mapping[Stand, int] = field(default_factory=dict)
    edited: int = 0
    error: str | None = None
    apart: str | None = None


class Desiring:
    """Keeps the lists, one turn after the other.

    A schedd that refused is tried with one job until it takes that: nothing is edited in vain, and
    nothing is half done.

    Args:
        sites: the queues.
        clock: aware UTC time.
        max_age: how old a fact may be for jobs that do not say.
        default_scope: of datasets that jobs name without one.
        pace: jobs a second, at most.
        interval: how often there is a turn; one edits no more jobs than *pace* allows until the next.
    """

    def __init__(
        self,
        sites: JobSites,
        clock: Clock,
        *,
        max_age: timedelta,
        default_scope: str | None,
        pace: float,
        interval: timedelta,
    ) -> None:
        self._sites = sites
        self._clock = clock
        self._max_age = max_age
        self._scope = default_scope
        self._pace = pace
        self._most = max(1, int(pace * interval.total_seconds()))
        self._refusing: set[str] = set()
        self._closed = threading.Event()

    def close(self) -> None:
        """End, also under a turn."""
        self._closed.set()
        self._sites.close()

    def turn(self, ads: Mapping[Site, SiteAd]) -> Mapping[str, Placed]:
        """Make the lists say what *ads* do; by schedd what came of it. Empty after ``close``."""
        known = {site: facts_of(ad) for site, ad in ads.items()}
        try:
            answers = self._sites.alike()
        except PoolError as error:
            return {} if self._closed.is_set() else {"": Placed(error=str(error))}
        found = {schedd: self._at(schedd, answer, known) for schedd, answer in answers.items()}
        return {} if self._closed.is_set() else found

    def _at(self, schedd: str, answer: Sequence[AlikeJobs] | Unseen, known: Known) -> Placed:
        if isinstance(answer, Unseen):
            return Placed(error=answer.reason)
        stands: Counter[Stand] = Counter()
        changes: list[Change] = []
        apart = None
        now = self._clock()
        for jobs in answer:
            stand, change = wish(jobs, known, now=now, max_age=self._max_age, default_scope=self._scope)
            if stand:
                stands[stand] += jobs.jobs
            if stand is Stand.APART:
                apart = apart or jobs.example
            if change:
                changes.append(change)
        changes.sort(key=lambda change: (not change.gives_back, change.jobs.example))
        edited, error = self._edit(schedd, changes)
        return Placed(stands, edited, error, apart)

    def _edit(self, schedd: str, changes: Sequence[Change]) -> tuple[int, str | None]:
        """Edit, what is given back first; how many jobs, and why not more."""
        edited = 0
        room = 1 if schedd in self._refusing else self._most
        for change in changes:
            while room > 0:
                batch = max(1, min(room, AT_ONCE, int(self._pace)))
                if edited and self._closed.wait(batch / self._pace):
                    return edited, None
                try:
                    done = self._sites.place(
                        schedd,
                        change.jobs,
                        change.value,
                        change.own,
                        keep=not change.gives_back,
                        at_most=batch,
                    )
                except PoolError as error:
                    self._refusing.add(schedd)
                    return edited, str(error)
                edited += done
                room -= done
                if done:
                    self._refusing.discard(schedd)
                if done < batch:
                    break
        return edited, None


class DesiredTelling:
    """What the turns came to, for people: metrics, and a line in the log when that changes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs = Gauge(
            "hydrator_desired_sites_jobs",
            "Idle jobs that ask for DESIRED_Sites, by how they stand: set, nowhere, apart, free, theirs.",
            ["schedd", "stand"],
            registry=registry,
        )
        self._edits = Count(
            "hydrator_desired_sites_edits",
            "Queued jobs whose DESIRED_Sites was set or given back.",
            ["schedd"],
            registry=registry,
        )
        self._errors = Count(
            "hydrator_desired_sites_errors",
            "Turns in which DESIRED_Sites could not be kept.",
            ["schedd"],
            registry=registry,
        )
        self._failing: set[str] = set()
        self._apart: set[str] = set()

    def tell(self, done: Mapping[str, Placed]) -> None:
        """Count one turn, and log who began or ceased to refuse, or has jobs that keep lists in vain."""
        for schedd, placed in done.items():
            self._edits.labels(schedd).inc(placed.edited)
            if placed.error:
                self._errors.labels(schedd).inc()
            if placed.stands or not placed.error:
                for stand in Stand:
                    self._jobs.labels(schedd, stand).set(placed.stands.get(stand, 0))
            self._tell_error(schedd, placed)
            self._tell_apart(schedd, placed)

    def forget(self) -> None:
        """It was switched off: no job stands anyhow any more."""
        self._jobs.clear()
        self._failing.clear()
        self._apart.clear()

    def _tell_error(self, schedd: str, placed: Placed) -> None:
        if placed.error and schedd not in self._failing:
            _log.error("desired sites not kept", schedd=schedd, why=placed.error)
            self._failing.add(schedd)
        elif not placed.error and schedd in self._failing:
            _log.info("desired sites are kept again", schedd=schedd)
            self._failing.discard(schedd)

    def _tell_apart(self, schedd: str, placed: Placed) -> None:
        """A list that the user gave stands, though none of its sites has the data: somebody should know."""
        if placed.apart and schedd not in self._apart:
            _log.warning(
                "no site of a job's own DESIRED_Sites has its data: it keeps its list",
                schedd=schedd,
                job=placed.apart,
                jobs=placed.stands.get(Stand.APART, 0),
            )
            self._apart.add(schedd)
        elif not placed.apart and not placed.error:
            self._apart.discard(schedd)
