"""Calls to a pool's collectors and schedds, and matches of jobs with slots, made in the child process."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from hydrator.domain.daemon_probe import Authorization, DaemonKind
from hydrator.domain.errors import PoolDenied

from .library import SITE_WIDE_ATTRIBUTES, Ad
from .process import ProcessClient

_LONG_NAMES = {name.lower() for name in SITE_WIDE_ATTRIBUTES}


class DaemonClient(ProcessClient):
    """Calls to any HTCondor daemon, and calls that contact no daemon."""

    def config_of(
        self, daemon: DaemonKind, names: Iterable[str], name: str | None = None
    ) -> dict[str, str | None]:
        """Return configuration values of an HTCondor daemon, None for an undefined value.

        The daemon must authorize this client for READ.

        *name* selects one of several daemons, a collector by its address; None takes the first daemon.
        """
        return dict(self._call("config_of", daemon=daemon, names=list(names), name=name))

    def ping(self, daemon: DaemonKind, level: str, name: str | None = None) -> Authorization:
        """Return whether *daemon* authorizes *level*: READ, WRITE, DAEMON, NEGOTIATOR, ADMINISTRATOR, …

        A denial is returned as an answer and raises no error.
        """
        try:
            answer = self._call("ping", daemon=daemon, level=level, name=name)
        except PoolDenied as exc:
            match = re.search(r"authenticated the client as (\S+) \(by (\w*)\)", exc.reason)
            identity, method = (match[1], match[2]) if match else (None, None)
            advice = self._token_limit_advice(level) if method == "IDTOKENS" else ""
            return Authorization(False, identity, method, exc.reason, advice)
        return Authorization(bool(answer["allowed"]), answer["identity"], answer["method"])

    def check_expressions(self, expressions: Mapping[str, str]) -> None:
        """Raise ConfigError if a text is not a ClassAd expression; the message names the text by its key."""
        self._call("parse", expressions=expressions)


class CollectorClient(DaemonClient):
    """Queries and updates of the pool's collectors."""

    def site_ads(self) -> list[Ad]:
        """Return the scalars of all site ads (MyType "DataLocality"); a missing attribute is None."""
        return list(self._call("site_ads"))

    def advertise(self, ads: Sequence[tuple[str, str]], lifetime: timedelta) -> int | None:
        """Send site ads, each ``(name, text)`` with one ``Name = literal`` a line, to every collector.

        Wait for 3 s at most until the collector returns the ads. Return the time when the collector
        received the last ad, in Unix seconds of the collector's clock. Return None if the ads are not
        visible yet; this is not an error.
        """
        if not ads:
            return None
        seconds = int(lifetime.total_seconds())
        received_at: int | None = self._call("advertise", ads=ads, lifetime=seconds)
        return received_at

    def invalidate(self, names: Sequence[str]) -> None:
        """Remove the site ads with these names; a missing ad is not an error."""
        if names:
            self._call("invalidate", names=names)

    def slots(
        self, attributes: Sequence[str], constraint: str = "true", collector: str | None = None
    ) -> list[Ad]:
        """Return slot ads from the first collector that answers, or from *collector*.

        Each ad has the keys *attributes*, spelled as given. A value is a literal, None, or the text of an
        expression.

        Raises:
            ValueError: *attributes* has one of the long attributes, whose values would be megabytes.
        """
        if long := [name for name in attributes if name.lower() in _LONG_NAMES]:
            raise ValueError(f"attributes whose values are too long for a query of slots: {', '.join(long)}")
        return list(self._call("slots", attributes=attributes, constraint=constraint, collector=collector))

    def collectors(self) -> list[str]:
        """Return the addresses of all configured collectors, ordered, without querying a collector."""
        return list(self._call("collectors"))

    def merge(
        self,
        collector: str,
        texts: Mapping[str, str | None],
        slots: Sequence[tuple[str, str, str, int]],
        since: int,
    ) -> list[str]:
        """Merge site ads into slots' ads at one collector, over one connection; return the slots' names.

        Skip a slot if its startd sent an update after *since* (Unix seconds of the collector's clock), or if
        the slot's ad has changed since the caller read it.

        Args:
            collector: one of :meth:`collectors`.
            texts: by site, the lines of the site ad; None withdraws the merge.
            slots: name, MyAddress, site and LastHeardFrom of each slot.
            since: the latest LastHeardFrom that the caller read in any slot's ad at this collector.
        """
        return list(self._call("merge", collector=collector, texts=texts, slots=slots, since=since))


class QueueClient(DaemonClient):
    """Queries of the queues and histories of schedds, and edits of queued jobs."""

    def schedds(self) -> list[Ad]:
        """Return name, version and counts of jobs of the schedds that the collector lists, by name."""
        ads = self._call("schedds")
        return sorted((ad for ad in ads if ad.get("Name")), key=lambda ad: str(ad["Name"]))

    def run_anywhere(self, schedd: str, constraint: str | None) -> int | None:
        """Free queued jobs from their data: they may run anywhere. Return the number of these jobs.

        *constraint* selects the jobs; None is every job. Raise ConfigError if the constraint is no expression
        or asks nothing of a job, such as a number. Return None if no queued job matches it.

        The job transform bound the jobs to their data by Requirements that refer to DataLocalityHere. Set
        this attribute to true and read it back. Raise PoolDenied if a job stayed unchanged; the call may
        have freed other jobs before.
        """
        freed: int | None = self._call("run_anywhere", schedd=schedd, constraint=constraint)
        return freed

    def read_queue(self, schedd: str, site_attributes: Sequence[str]) -> Ad:
        """Return the queue of *schedd*.

        See :meth:`adapters.condor.bindings.schedd_calls.LoadCalls.read_queue`.
        """
        return dict(self._call("read_queue", schedd=schedd, site_attributes=site_attributes))

    def read_job_texts(self, schedd: str, ids: Sequence[str]) -> dict[str, Ad]:
        """Return the texts of all expressions of the idle jobs with these *ids*, by id."""
        return dict(self._call("read_job_texts", schedd=schedd, ids=ids))

    def read_cluster_jobs(
        self, schedd: str, cluster: int, site_attributes: Sequence[str], max_jobs: int
    ) -> Ad:
        """Return the jobs of *cluster*: rows of ``idle`` and of ``running`` ones, and ``held_count``.

        Read *max_jobs* at most; ``is_complete`` is False if there may be more.
        """
        query = {"cluster": cluster, "site_attributes": site_attributes, "max_jobs": max_jobs}
        return dict(self._call("read_cluster_jobs", schedd=schedd, **query))

    def read_transfer_records(self, schedd: str, since: datetime, site_attributes: Sequence[str]) -> list[Ad]:
        """Return input transfers that *schedd* recorded in its JOB_EPOCH_HISTORY after *since*.

        A row of ``kind`` ``INPUT`` has ``run``, the run of a job, and its ``files``; one of ``kind``
        ``EPOCH`` comes at the end of the run. ``site`` is the first of *site_attributes* that the schedd
        recorded, ``user`` the job's owner. ``run``, ``site`` and ``user`` are None if the record lacks
        them. Each file has ``host``, ``bytes``, ``seconds`` and ``ended_at``.
        """
        query = {"since": int(since.timestamp()), "site_attributes": site_attributes}
        return list(self._call("read_transfer_records", schedd=schedd, **query))

    def outcomes(
        self,
        schedd: str,
        since: datetime,
        site_attributes: Sequence[str],
        *,
        after_job_id: str | None = None,
        max_jobs: int,
        ended_before: datetime | None = None,
    ) -> list[Ad]:
        """Return jobs of *schedd* that ended after *since*; the job that left the queue last comes first.

        Args:
            schedd: the name of the schedd.
            since: return only jobs that ended at or after this time.
            site_attributes: names of slot attributes; the first that is recorded gives the job's site.
            after_job_id: the GlobalJobId of a job; return only jobs that left the queue after this job.
            max_jobs: the largest number of jobs to return, 1 or more.
            ended_before: return only jobs that ended before this time.

        Returns:
            ``GlobalJobId``, ``JobStatus``, ``QDate``, ``JobStartDate``, ``JobCurrentStartDate`` and
            ``EnteredCurrentStatus`` (as in the job ad: any scalar or None), ``site`` (None if not
            recorded), ``datasets`` (None if the job names none), ``key``, and whether it ``is_of_cluster``,
            ``asked`` (DataLocalityStart) and ``start`` (MATCH_EXP_DataLocalityStart; any literal, or None),
            ``User``, ``misses`` and ``reads``.
        """
        query = {"after_job_id": after_job_id, "max_jobs": max_jobs, "site_attributes": site_attributes}
        ends = {"ended_before": None if ended_before is None else int(ended_before.timestamp())}
        return list(self._call("outcomes", schedd=schedd, since=int(since.timestamp()), **query, **ends))


class MatchClient(DaemonClient):
    """Queries that explain why a job does not start."""

    def jobs(self, schedd: str, cluster: int, proc: int | None = None) -> list[Ad]:
        """Return the jobs of a cluster, or one job, in rows of alike jobs.

        A row has the ProcIds of its jobs (``procs``) and the ``ad`` of the first of them.
        An ad has the text of each attribute's expression. If the cluster has many kinds of jobs, the
        rows of later kinds are ``brief``: their ads have only the attributes that distinguish kinds.
        """
        return list(self._call("jobs", schedd=schedd, cluster=cluster, proc=proc))

    def find_ended_job(self, schedd: str, cluster: int, proc: int | None = None) -> Ad | None:
        """Return the ad of a job, or of a cluster's last job, from the history; None without such a job."""
        ads = self._call("find_ended_job", schedd=schedd, cluster=cluster, proc=proc)
        return ads[0] if ads else None

    def evaluate_match(
        self,
        job: Mapping[str, str],
        facts: Sequence[str],
        site_attributes: Sequence[str],
        *,
        atomic_attributes: Sequence[str] = (),
        flock: Sequence[str] = (),
    ) -> Ad:
        """Evaluate the match of a job with every slot, clause by clause, with the library of the negotiator.

        Query all configured collectors; at least one must answer. Omit dynamic slots, which jobs already
        use, and data slots, on which HTCondor 25 keeps common input files.

        Args:
            job: the text of each attribute's expression.
            facts: further expressions to evaluate for each group of alike slots; MY is the job.
            site_attributes: slot attributes with the site; the first that a slot has gives its site.
            atomic_attributes: attributes of the job that stay one clause, even if their expressions have
                several clauses.
            flock: collectors of the pools to which the job's schedd flocks. Groups of slots there have a
                ``pool``.

        Returns:
            ``unreachable_pools``: by collector of *flock*, the reason why it did not answer.
            ``clauses``: the texts that Requirements joins by ``&&``. ``requests``: by resource, the value
            of ``RequestCpus`` and so on. ``groups``: alike slots with their number ``slots``, ``site``,
            ``advertised_site`` (DataLocalitySite), ``generation``, ``state``, ``partitionable``, ``theirs``
            (the slots' own clauses), ``job_values`` and ``slot_values`` ("true", "false", "undefined" or
            "error", in the order of the clauses) and ``matches``. Groups of partitionable slots also have
            ``job_values_empty`` and ``slot_values_empty``: the values if no resource of the slot were in use.
            ``facts`` has the values of *facts*, None if a value is not a scalar. ``largest_resources`` is the
            most that one slot of the group has of each resource.
        """
        query = {"facts": facts, "site_attributes": site_attributes, "atomic_attributes": atomic_attributes}
        return dict(self._call("evaluate_match", job=job, flock=flock, **query))

    def evaluate_sites(self, jobs: Sequence[Mapping[str, str]], site_attributes: Sequence[str]) -> list[Ad]:
        """Return, for each of *jobs* (texts of its expressions), the sites that match all but its data.

        See :meth:`adapters.condor.bindings.match_calls.MatchCalls.evaluate_sites`.
        """
        return list(self._call("evaluate_sites", jobs=list(jobs), site_attributes=site_attributes))


class CondorClient(CollectorClient, QueueClient, MatchClient):
    """A client with all calls, which share one child process, one lock and one set of credentials.

    A function that calls only one kind of daemon should have a parameter of this daemon's base class.
    """
