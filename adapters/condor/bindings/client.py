"""Calls to the daemons of a pool, made through the child process: collectors, schedds and matches."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from hydrator.domain.errors import PoolDenied

from .process import Ad, ProcessClient
from .token_advice import ADVERTISE_ADVICE, DESIRED_SITES_ADVICE, MERGE_ADVICE, READ_ADVICE, RELEASE_ADVICE
from .values import SITE_WIDE_ATTRIBUTES

DaemonKind = Literal["collector", "negotiator", "schedd", "startd"]
_LONG_NAMES = {name.lower() for name in SITE_WIDE_ATTRIBUTES}


@dataclass(frozen=True, slots=True)
class Authorization:
    """A daemon's answer for one authorization level; ``reason`` of a denial, empty when allowed."""

    level: str
    is_allowed: bool
    identity: str | None = None
    method: str | None = None
    reason: str = ""
    token_limit_advice: str = ""
    """The remedy where the token does not allow the level, whatever its identity."""


class DaemonClient(ProcessClient):
    """Calls that any daemon answers, or none."""

    @property
    def collector_label(self) -> str:
        """Return the collector's name in messages."""
        return f"collector {self._settings.collector}" if self._settings.collector else "collector"

    def config_of(
        self, daemon: DaemonKind, names: Iterable[str], name: str | None = None
    ) -> dict[str, str | None]:
        """Return the daemon's own configuration values, None for a name it does not have; needs READ.

        *name* selects among several daemons of a kind, a collector by its address; None takes the first.
        """
        target = f"{daemon} {name}" if name else daemon
        values = self._call("config_of", target, READ_ADVICE, daemon=daemon, names=list(names), name=name)
        return dict(values)

    def ping(self, daemon: DaemonKind, level: str, name: str | None = None) -> Authorization:
        """Return whether *daemon* authorizes *level*: READ, WRITE, DAEMON, NEGOTIATOR, ADMINISTRATOR, …

        A denial is an answer here, not an error.
        """
        target = f"{daemon} {name}" if name else daemon
        try:
            answer = self._call("ping", target, "", daemon=daemon, level=level, name=name)
        except PoolDenied as exc:
            match = re.search(r"authenticated the client as (\S+) \(by (\w*)\)", exc.reason)
            identity, method = (match[1], match[2]) if match else (None, None)
            advice = self._token_limit_advice(level) if method == "IDTOKENS" else ""
            return Authorization(
                level,
                is_allowed=False,
                identity=identity,
                method=method,
                reason=exc.reason,
                token_limit_advice=advice,
            )
        return Authorization(level, bool(answer["allowed"]), answer["identity"], answer["method"])

    def check_expressions(self, expressions: Mapping[str, str]) -> None:
        """Raise ConfigError for a text that is not a ClassAd expression; keys describe the texts."""
        self._call("parse", "the ClassAd parser", "", expressions=dict(expressions))


class CollectorClient(DaemonClient):
    """Queries and updates of the pool's collectors."""

    def site_ads(self) -> list[Ad]:
        """Return all site ads (MyType "DataLocality"), scalars only; a missing attribute is None."""
        return list(self._call("site_ads", self.collector_label, READ_ADVICE))

    def advertise(self, ads: Sequence[tuple[str, str]], lifetime: timedelta) -> int | None:
        """Send site ads, each ``(name, text)`` with one ``Name = literal`` a line, to every collector.

        Waits, for 3 s at most, until the collector shows them. Returns when it received the last one, in
        Unix seconds of *its* clock; None when they did not show, which is not an error here.
        """
        if not ads:
            return None
        seconds = int(lifetime.total_seconds())
        received_at = self._call(
            "advertise", self.collector_label, ADVERTISE_ADVICE, ads=list(ads), lifetime=seconds
        )
        return received_at if isinstance(received_at, int) else None

    def invalidate(self, names: Sequence[str]) -> None:
        """Remove the site ads of these names; a missing one is not an error."""
        if names:
            self._call("invalidate", self.collector_label, ADVERTISE_ADVICE, names=list(names))

    def heartbeat(self, name: str, leads_since: int, lifetime: timedelta) -> list[Ad]:
        """Send the heartbeat of the daemon *name*; return those of all daemons.

        *leads_since* is the Unix time since which it leads. Each ad has ``Name``,
        ``DataLocalityLeadsSince`` and ``LastHeardFrom``; the own one is ``Shared`` if another daemon uses
        this name.
        """
        ads = self._call(
            "heartbeat",
            self.collector_label,
            ADVERTISE_ADVICE,
            name=name,
            leads_since=leads_since,
            lifetime=int(lifetime.total_seconds()),
        )
        return list(ads)

    def slots(self, attributes: Sequence[str], constraint: str = "true") -> list[Ad]:
        """Return slot ads with *attributes*, under these spellings: literals, None, or an expression's text.

        Raises:
            ValueError: one of the long attributes, which would be megabytes.
        """
        if long := [name for name in attributes if name.lower() in _LONG_NAMES]:
            raise ValueError(f"too long to be queried of slots: {', '.join(long)}")
        ads = self._call(
            "slots", self.collector_label, READ_ADVICE, attributes=list(attributes), constraint=constraint
        )
        return list(ads)

    def slots_by_site(self, attributes: Sequence[str]) -> dict[str, int]:
        """Count the slots of each site; a slot's site is the first of *attributes* it has, "" without one."""
        sites = (
            next((str(ad[name]) for name in attributes if ad[name]), "") for ad in self.slots(attributes)
        )
        return dict(sorted(Counter(sites).items()))

    def collectors(self) -> list[str]:
        """Return the addresses of all collectors, ordered; queries none of them."""
        return list(self._call("collectors", self.collector_label, ""))

    def slots_at(self, collector: str, attributes: Sequence[str], constraint: str = "true") -> list[Ad]:
        """Return slot ads like :meth:`slots`, from one collector."""
        ads = self._call(
            "slots_at",
            f"collector {collector}",
            READ_ADVICE,
            collector=collector,
            attributes=list(attributes),
            constraint=constraint,
        )
        return list(ads)

    def merge(
        self,
        collector: str,
        texts: Mapping[str, str | None],
        slots: Sequence[tuple[str, str, str, int]],
        since: int,
    ) -> list[str]:
        """Merge site ads into slots' ads at one collector, over one connection; return the slots' names.

        A slot is left out when its startd sent an update after *since* (Unix s, by the collector's clock), or
        when its ad is another one than the caller read.

        Args:
            collector: one of :meth:`collectors`.
            texts: by site the lines of its ad; None takes the merge back.
            slots: name, MyAddress, site and LastHeardFrom of each.
            since: the latest LastHeardFrom that the caller read of any slot there.
        """
        names = self._call(
            "merge",
            f"collector {collector}",
            MERGE_ADVICE,
            collector=collector,
            texts=dict(texts),
            slots=list(slots),
            since=since,
        )
        return [str(name) for name in names]


class ScheddClient(DaemonClient):
    """Queries of the pool's schedds, and edits of their jobs."""

    def schedds(self) -> list[Ad]:
        """Return Name, Machine and CondorVersion of the schedds that the collector lists, by name."""
        ads = self._call("schedds", self.collector_label, READ_ADVICE)
        return sorted((ad for ad in ads if ad.get("Name")), key=lambda ad: str(ad["Name"]))

    def has_user_record(self, schedd: str, user: str) -> bool:
        """Return True if *schedd* has a record of *user* (``name@domain``); queue super users need one."""
        return bool(self._call_schedd("has_user_record", schedd, READ_ADVICE, user=user))

    def count_queued_datasets(self, schedd: str) -> list[tuple[tuple[str, ...], int]]:
        """Count the jobs of *schedd*, without those removed or completed, by their RequiredDatasets.

        A RequiredDatasets that is not a list of strings comes back as one text,
        ``RequiredDatasets = …``. A late-materialization factory with items
        that are not jobs yet adds one job to the list of its first item.
        """
        rows = self._call_schedd("count_queued_datasets", schedd, READ_ADVICE)
        return [(tuple(datasets), jobs) for datasets, jobs in rows]

    def query_misses(self, schedd: str, since: datetime) -> list[list[str]]:
        """Return the data that jobs missed where they ran, each ChirpDataLocalityMisses in its own list.

        Reads jobs in the queue of *schedd*, and jobs that left it after *since*. Returns 1000 at most, a fair
        share of each user, and first those that differ in dataset or site.
        """
        rows = self._call_schedd("query_misses", schedd, READ_ADVICE, since=int(since.timestamp()))
        return [list(texts) for texts in rows]

    def outcomes(
        self,
        schedd: str,
        since: datetime,
        site_attributes: Sequence[str],
        *,
        after_job_id: str | None = None,
        max_jobs: int,
    ) -> list[Ad]:
        """Return jobs of *schedd* that ended after *since*, the last to leave its queue first.

        Args:
            schedd: its name.
            since: jobs that ended before are left out.
            site_attributes: slot attributes with the site; the first that the schedd recorded counts.
            after_job_id: the GlobalJobId of a job; only jobs that left the queue after it.
            max_jobs: 1 or more.

        Returns:
            ``GlobalJobId``, ``QDate``, ``JobStartDate``, ``JobCurrentStartDate`` and
            ``EnteredCurrentStatus`` (as the job has them: any scalar or None), ``site`` (None where not
            recorded), ``datasets`` (None where it names none), ``bytes`` (by DID) and ``misses``.
        """
        rows = self._call_schedd(
            "outcomes",
            schedd,
            READ_ADVICE,
            since=int(since.timestamp()),
            after_job_id=after_job_id,
            max_jobs=max_jobs,
            site_attributes=list(site_attributes),
        )
        return list(rows)

    def last_ended(self, schedd: str) -> str | None:
        """Return the GlobalJobId of the job that left the queue of *schedd* last; None without one."""
        job_id = self._call_schedd("last_ended", schedd, READ_ADVICE)
        return None if job_id is None else str(job_id)

    def release(self, schedd: str | None, constraint: str = "true") -> int:
        """Let queued jobs that the job transform tied to their data run anywhere; return how many.

        Sets DataLocalityHere, to which their Requirements refer, to true and
        reads it back. None means every schedd. Raises PoolDenied when a job
        stayed unchanged; jobs before it may have been released.
        """
        return self._sum_over_schedds("release", schedd, RELEASE_ADVICE, constraint=constraint)

    def read_job_groups(self, schedd: str) -> list[Ad]:
        """Return idle jobs of *schedd* that ask for a list of sites, or have one of the daemon's.

        Alike jobs share a row.

        Each has the fields of :class:`hydrator.domain.pool_ports.JobGroup`, and ``kept`` those of
        :class:`hydrator.domain.pool_ports.SavedDesiredSites`.
        """
        return list(self._call_schedd("read_job_groups", schedd, READ_ADVICE))

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
        count = self._call_schedd(
            "set_desired_sites",
            schedd,
            DESIRED_SITES_ADVICE,
            row=dict(row),
            value=value,
            original_value=original_value,
            keep=keep,
            max_jobs=max_jobs,
        )
        return int(count)

    def restore_desired_sites(
        self, schedd: str | None, constraint: str = "true", *, should_opt_out: bool
    ) -> int:
        """Restore the DESIRED_Sites that queued jobs had, and remove the daemon's marks; return how many.

        With *should_opt_out* they ask for no list from now on. None means every schedd. Raises PoolDenied
        when a job stayed unchanged.
        """
        args = {"constraint": constraint, "should_opt_out": should_opt_out}
        return self._sum_over_schedds("restore_desired_sites", schedd, DESIRED_SITES_ADVICE, **args)

    def _sum_over_schedds(self, call: str, schedd: str | None, advice: str, **args: object) -> int:
        names = [str(ad["Name"]) for ad in self.schedds()] if schedd is None else [schedd]
        return sum(int(self._call_schedd(call, name, advice, **args)) for name in names)

    def _call_schedd(self, call: str, schedd: str, advice: str, **args: object) -> Any:  # noqa: ANN401  (JSON)
        return self._call(call, f"schedd {schedd}", advice, schedd=schedd, **args)


class MatchClient(DaemonClient):
    """Queries that explain why a job does not start."""

    def jobs(self, schedd: str, cluster: int, proc: int | None = None) -> list[Ad]:
        """Return the jobs of a cluster, or one of them; alike ones in one row: ``procs``, first ``ad``.

        An ad has the text of each attribute's expression. Of many kinds of jobs the later ones are
        ``brief``: their ads have only the attributes that distinguish kinds.
        """
        target = f"schedd {schedd}"
        return list(self._call("jobs", target, READ_ADVICE, schedd=schedd, cluster=cluster, proc=proc))

    def find_ended_job(self, schedd: str, cluster: int, proc: int | None = None) -> Ad | None:
        """Return the history's ad of a job at *schedd*, or of the last of a cluster; None without one."""
        target = f"schedd {schedd}"
        ads = self._call("find_ended_job", target, READ_ADVICE, schedd=schedd, cluster=cluster, proc=proc)
        return ads[0] if ads else None

    def count_uploads(self, schedd: str, user: str, least_bytes: int) -> int:
        """Return how many jobs of *user* at *schedd* send *least_bytes* of input or more, or wait to."""
        args = {"schedd": schedd, "user": user, "least_bytes": least_bytes}
        return int(self._call("count_uploads", f"schedd {schedd}", READ_ADVICE, **args))

    def evaluate_match(
        self,
        job: Mapping[str, str],
        facts: Sequence[str],
        site_attributes: Sequence[str],
        *,
        atomic_attributes: Sequence[str] = (),
        constraint: str = "true",
        flock: Sequence[str] = (),
    ) -> Ad:
        """Evaluate a job against every slot, with the negotiator's library, clause by clause.

        All configured collectors are queried; those that do not answer are left out unless none does.
        Data slots, on which HTCondor 25 keeps common input files, are left out.

        Args:
            job: the text of each attribute's expression.
            facts: expressions to evaluate for each group of alike slots, MY being the job.
            site_attributes: slot attributes with the site; the first that a slot has counts.
            atomic_attributes: attributes of the job that count as one clause, whatever they are made of.
            constraint: selects slots.
            flock: collectors of other pools, to which the job's schedd flocks; their groups have a ``pool``.

        Returns:
            ``unreachable_pools``: by collector of *flock*, the reason why it did not answer.
            ``clauses``: the texts that Requirements joins by ``&&``. ``requests``: by resource, the value of
            ``RequestCpus`` and so on. ``groups``: alike slots, each with
            their number ``slots``, an ``example``, ``site``, ``advertised_site`` (DataLocalitySite),
            ``generation``, ``as_of``, ``via``, ``state``, ``partitionable``, ``dynamic``,
            ``requirements`` (text), ``theirs`` (the slots' own clauses), ``job_values`` and
            ``slot_values`` ("true", "false", "undefined" or "error", in the order of the clauses),
            ``matches``; for partitionable ones both lists of values with ``_empty`` too, as if nothing
            of the slot were in use; ``facts`` (values, None if not a scalar) and ``largest_resources``: the
            most that one of them has of each resource.
        """
        answer = self._call(
            "evaluate_match",
            self.collector_label,
            READ_ADVICE,
            job=dict(job),
            facts=list(facts),
            site_attributes=list(site_attributes),
            atomic_attributes=list(atomic_attributes),
            constraint=constraint,
            flock=list(flock),
        )
        return dict(answer)


class CondorClient(CollectorClient, ScheddClient, MatchClient):
    """All calls through one child process, whose lock and credentials they share.

    Callers that need one daemon's calls only should ask for its class.
    """
