"""The parent's side of the HTCondor child process: starts it, asks it, ends it, starts it again."""

import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from adapters.condor.bindings.process import (
    CHILD,
    START_SECONDS,
    Ad,
    CondorSettings,
    _Child,
    _ChildUnavailable,
    build_environment,
)
from hydrator.domain.errors import ConfigError, PoolDenied, PoolError

from . import token_advice as tokens

DaemonKind = Literal["collector", "negotiator", "schedd", "startd"]

MAX_PAUSE_SECONDS = 5.0
MAX_CALLS_OF_CHILD = 10_000
"""After so many answers another child takes over: the bindings lose some 0.7 kB a call (benchmarks, soak)."""
COLLECTOR_QUERIES = {"site_ads", "schedds", "slots"}
"""Calls in which only a collector can hang: the next child asks another one first, where there is one."""
FIRST_COLLECTOR = "HYDRATOR_FIRST_COLLECTOR"
TIMEOUT_FACTORS = {
    "evaluate_match": 6,
    "outcomes": 6,
    "read_job_groups": 6,
    "set_desired_sites": 3,
    "restore_desired_sites": 6,
}
"""How many timeouts a call may take; 2,000 slots beside 244 datasets are 4 s, and the queries come on top."""
SITE_WIDE_ATTRIBUTES = {
    "availabledatasets",
    "datasetstates",
    "datasetfractions",
    "datasetasof",
    "datasetletters",
}


@dataclass(frozen=True, slots=True)
class Authorization:
    """What a daemon said of us at one authorization level; ``reason`` is why not, empty when allowed."""

    level: str
    is_allowed: bool
    identity: str | None = None
    method: str | None = None
    reason: str = ""
    token_limit_advice: str = ""
    """What to do, where the token does not allow the level whoever shows it."""


class CondorClient:
    """The pool, asked through a child process that may hang or die without harm to us.

    Thread-safe: one request at a time. Each call has ``settings.timeout``. A
    child that hangs, dies or talks nonsense is killed, the call raises
    PoolError, and the next call starts another one. It ends with the thread
    that holds it, so with this process, however that ends.

    Every call raises:
        PoolDenied: a daemon refused our credentials or our authorization.
        PoolError: a daemon could not be asked in time.
        ConfigError: an expression that the caller gave cannot be parsed.
    """

    def __init__(
        self,
        settings: CondorSettings,
        command: Sequence[str] = CHILD,
        *,
        max_calls_of_child: int = MAX_CALLS_OF_CHILD,
    ) -> None:
        self._settings = settings
        self._max_calls_of_child = max_calls_of_child
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._close_event = threading.Event()
        # PR_SET_PDEATHSIG means the *thread* that started the child, so one thread stays for that
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="condor-child")
        self._child: _Child | None = None
        self._start_count = 0
        self._planned_restarts = 0
        self._failed_starts = 0
        self._last_id = 0
        self._first_collector = 0

    @property
    def restart_count(self) -> int:
        """How often the child had to be started again; one that has served its time does not count."""
        return max(0, self._start_count - self._planned_restarts - 1)

    @property
    def pid(self) -> int | None:
        """The child's process id, None where there is none."""
        child = self._child
        return child.pid if child else None

    @property
    def collector_label(self) -> str:
        """The collector, for people."""
        return f"collector {self._settings.collector}" if self._settings.collector else "collector"

    def close(self) -> None:
        """End the child, also under a call that is waiting for it; closing twice is no error."""
        self._close_event.set()
        if child := self._child:
            child.kill()
        with self._lock:
            self._discard_child()
        self._starter.shutdown(wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    # what the collector holds

    def site_ads(self) -> list[Ad]:
        """All site ads (MyType "DataLocality"), scalars only; an attribute that an ad lacks is None."""
        return self._call_for_list("site_ads", self.collector_label, READ_ADVICE)

    def advertise(self, ads: Sequence[tuple[str, str]], lifetime: timedelta) -> int | None:
        """Send site ads, each ``(name, text)`` with one ``Name = literal`` a line, to every collector.

        Waits, for 3 s at most, until the collector shows them, and answers
        when it heard the last one, in Unix seconds of *its* clock; None when
        they did not show, which is no error here.
        """
        seconds = int(lifetime.total_seconds())
        heard = (
            self._call("advertise", self.collector_label, ADVERTISE_ADVICE, ads=list(ads), lifetime=seconds)
            if ads
            else None
        )
        return heard if isinstance(heard, int) else None

    def invalidate(self, names: Sequence[str]) -> None:
        """Take the site ads of these names away; those that are not there are no error."""
        if names:
            self._call("invalidate", self.collector_label, ADVERTISE_ADVICE, names=list(names))

    def heartbeat(self, name: str, leads_since: int, lifetime: timedelta) -> list[Ad]:
        """Tell that the daemon *name* lives, and since when it leads; ``Name``, ``DataLocalityLeadsSince``
        and ``LastHeardFrom`` of all daemons that told so; ours is ``Shared`` where another has our name.
        """
        seconds = int(lifetime.total_seconds())
        return self._call_for_list(
            "heartbeat",
            self.collector_label,
            ADVERTISE_ADVICE,
            name=name,
            leads_since=leads_since,
            lifetime=seconds,
        )

    def slots(self, attributes: Sequence[str], constraint: str = "true") -> list[Ad]:
        """Slot ads with *attributes*, under these spellings: literals, None, or an expression's text.

        Raises:
            ValueError: one of the long attributes, which would be megabytes.
        """
        if long := [name for name in attributes if name.lower() in SITE_WIDE_ATTRIBUTES]:
            raise ValueError(f"not asked of slots, it is too long: {', '.join(long)}")
        return self._call_for_list(
            "slots", self.collector_label, READ_ADVICE, attributes=list(attributes), constraint=constraint
        )

    def slots_by_site(self, attributes: Sequence[str]) -> dict[str, int]:
        """How many slots each site has; a slot's site is the first of *attributes* it has, "" where none."""
        sites = (
            next((str(ad[name]) for name in attributes if ad[name]), "") for ad in self.slots(attributes)
        )
        return dict(sorted(Counter(sites).items()))

    def collectors(self) -> list[str]:
        """The addresses of all collectors, ordered; asks none of them."""
        return self._call_for_list("collectors", self.collector_label, "")

    def slots_at(self, collector: str, attributes: Sequence[str], constraint: str = "true") -> list[Ad]:
        """As :meth:`slots`, of one collector."""
        who = f"collector {collector}"
        return self._call_for_list(
            "slots_at",
            who,
            READ_ADVICE,
            collector=collector,
            attributes=list(attributes),
            constraint=constraint,
        )

    def merge(
        self,
        collector: str,
        texts: Mapping[str, str | None],
        slots: Sequence[tuple[str, str, str, int]],
        since: int,
    ) -> list[str]:
        """Merge site ads into slots' ads at one collector, over one connection; answers for which slots.

        A slot whose startd was heard after *since* (Unix s, by the collector's clock), or whose ad is another
        one than the caller saw, is left alone.

        Args:
            collector: one of :meth:`collectors`.
            texts: by site the lines of its ad; None takes back what was merged.
            slots: name, MyAddress, site and LastHeardFrom of each.
            since: the latest LastHeardFrom that the caller saw of any slot there.
        """
        sent = self._call_for_list(
            "merge",
            f"collector {collector}",
            MERGE_ADVICE,
            collector=collector,
            texts=dict(texts),
            slots=list(slots),
            since=since,
        )
        return [str(name) for name in sent]

    # schedds

    def schedds(self) -> list[Ad]:
        """The schedds that the collector knows: Name, Machine, CondorVersion; by name."""
        found = self._call_for_list("schedds", self.collector_label, READ_ADVICE)
        return sorted((ad for ad in found if ad.get("Name")), key=lambda ad: str(ad["Name"]))

    def count_queued_datasets(self, schedd: str) -> list[tuple[tuple[str, ...], int]]:
        """Jobs of *schedd* that are neither removed nor completed, counted by their RequiredDatasets.

        A RequiredDatasets that is no list of strings comes back as one text,
        ``RequiredDatasets = …``. A late-materialization factory with items
        that are no jobs yet adds one job to the list of its first item.
        """
        rows = self._call_for_list("count_queued_datasets", f"schedd {schedd}", READ_ADVICE, schedd=schedd)
        return [(tuple(datasets), jobs) for datasets, jobs in rows]

    def query_misses(self, schedd: str, since: datetime) -> list[list[str]]:
        """Return what jobs did not find where they ran, each of ChirpDataLocalityMisses in a list of its own.

        Of jobs that are in the queue of *schedd*, and of those that left it after *since*; 1000 at most, of
        each user a fair share, and those first that differ in dataset or site.
        """
        seconds = int(since.timestamp())
        found = self._call_for_list(
            "query_misses", f"schedd {schedd}", READ_ADVICE, schedd=schedd, since=seconds
        )
        return [list(texts) for texts in found]

    def outcomes(
        self,
        schedd: str,
        since: datetime,
        site_attributes: Sequence[str],
        *,
        after_job_id: str | None = None,
        max_jobs: int,
    ) -> list[Ad]:
        """Jobs of *schedd* that ended after *since*, the last to leave its queue first, *at_most* so many.

        Args:
            since: of jobs that ended before, none is told.
            site_attributes: where a slot said its site, the first that the schedd recorded of it.
            after: the GlobalJobId of a job; only those that left the queue after it.
            at_most: 1 or more.

        Returns:
            ``GlobalJobId``, ``QDate``, ``JobStartDate``, ``JobCurrentStartDate`` and
            ``EnteredCurrentStatus`` (as the job has them: any scalar or None), ``site`` (None where not
            recorded), ``datasets`` (None where it names none), ``bytes`` (by DID) and ``misses``.
        """
        return self._call_for_list(
            "outcomes",
            f"schedd {schedd}",
            READ_ADVICE,
            schedd=schedd,
            since=int(since.timestamp()),
            after=after_job_id,
            at_most=max_jobs,
            site_attributes=list(site_attributes),
        )

    def last_ended(self, schedd: str) -> str | None:
        """The GlobalJobId of the job that left the queue of *schedd* last; None where none did."""
        found = self._call("last_ended", f"schedd {schedd}", READ_ADVICE, schedd=schedd)
        return None if found is None else str(found)

    def release(self, schedd: str | None, constraint: str = "true") -> int:
        """Let queued jobs that our transform tied to their data go anywhere; answers how many.

        Sets DataLocalityHere, to which their Requirements refer, to true and
        reads it back. None means every schedd. Raises PoolDenied when a job
        was left as it was; jobs before it may have been released.
        """
        names = [str(ad["Name"]) for ad in self.schedds()] if schedd is None else [schedd]
        return sum(self._release_at(name, constraint) for name in names)

    def _release_at(self, schedd: str, constraint: str) -> int:
        return int(
            self._call("release", f"schedd {schedd}", RELEASE_ADVICE, schedd=schedd, constraint=constraint)
        )

    def read_job_groups(self, schedd: str) -> list[Ad]:
        """Idle jobs of *schedd* that ask for a list of sites, or have one of ours; alike jobs in one row.

        Each with the fields of :class:`hydrator.domain.ports.JobGroup`, ``kept`` with those of ``Kept``.
        """
        return self._call_for_list("read_job_groups", f"schedd {schedd}", READ_ADVICE, schedd=schedd)

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
        """Have the jobs of a *row* of :meth:`alike_jobs` say *value*; see ``hydrator.domain.ports.JobSites``."""
        who = f"schedd {schedd}"
        asked = {"row": dict(row), "value": value, "own": original_value, "keep": keep, "at_most": max_jobs}
        return int(self._call("set_desired_sites", who, DESIRED_SITES_ADVICE, schedd=schedd, **asked))

    def restore_desired_sites(
        self, schedd: str | None, constraint: str = "true", *, should_opt_out: bool
    ) -> int:
        """Give back to queued jobs the DESIRED_Sites that they had, and take our marks off; answers how many.

        With *asking* they ask for none from now on. None means every schedd. Raises PoolDenied when a job was
        left as it was.
        """
        names = [str(ad["Name"]) for ad in self.schedds()] if schedd is None else [schedd]
        asked = {"constraint": constraint, "asking": should_opt_out}
        done = [
            self._call("restore_desired_sites", f"schedd {name}", DESIRED_SITES_ADVICE, schedd=name, **asked)
            for name in names
        ]
        return sum(int(one) for one in done)

    def has_user_record(self, schedd: str, user: str) -> bool:
        """Whether *schedd* has a record of *user* (``name@domain``), as a queue super user needs it."""
        return bool(self._call("has_user_record", f"schedd {schedd}", READ_ADVICE, schedd=schedd, user=user))

    # why a job does not match

    def jobs(self, schedd: str, cluster: int, proc: int | None = None) -> list[Ad]:
        """The jobs of a cluster, or one of them, alike jobs together: ``procs``, and the ``ad`` of the first.

        An ad is the text of each attribute's expression. Of many kinds of jobs the later ones are
        ``brief``: their ads have only what tells kinds apart.
        """
        return self._call_for_list(
            "jobs", f"schedd {schedd}", READ_ADVICE, schedd=schedd, cluster=cluster, proc=proc
        )

    def find_ended_job(self, schedd: str, cluster: int, proc: int | None = None) -> Ad | None:
        """What the history of *schedd* says of a job, or of the last of a cluster; None when nothing."""
        found = self._call_for_list(
            "find_ended_job", f"schedd {schedd}", READ_ADVICE, schedd=schedd, cluster=cluster, proc=proc
        )
        return found[0] if found else None

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
        """A job beside every slot, with the library that the negotiator has, clause by clause.

        Every configured collector is asked; those that do not answer are passed over unless none does.
        Data slots, on which HTCondor 25 keeps common input files, are left out.

        Args:
            job: the text of each attribute's expression.
            facts: expressions to evaluate for each group of alike slots, MY being the job.
            site_attributes: where a slot says its site; the first that it has.
            whole: attributes of the job that count as one clause, whatever they are made of.
            constraint: which slots.
            flock: collectors of other pools, to which the job's schedd flocks; their groups have a ``pool``.

        Returns:
            ``unasked``: by collector of *flock*, why it could not be asked.
            ``clauses``: the texts that Requirements joins by ``&&``. ``requests``: by resource, the value of
            ``RequestCpus`` and so on. ``groups``: alike slots, each with
            their number ``slots``, an ``example``, ``site``, ``advertised_site`` (DataLocalitySite),
            ``generation``, ``as_of``, ``via``, ``state``, ``partitionable``, ``dynamic``,
            ``requirements`` (text), ``theirs`` (the slots' own clauses), ``job_values`` and
            ``slot_values`` ("true", "false", "undefined" or "error", in the order of the clauses),
            ``matches``; for partitionable ones both lists of values with ``_empty`` too, as if nothing
            of the slot were in use; ``facts`` (values, None for no scalar) and ``most``: the most that one of
            them has of each resource.
        """
        found = self._call(
            "evaluate_match",
            self.collector_label,
            READ_ADVICE,
            job=dict(job),
            facts=list(facts),
            site_attributes=list(site_attributes),
            whole=list(atomic_attributes),
            constraint=constraint,
            flock=list(flock),
        )
        return dict(found)

    def count_uploads(self, schedd: str, user: str, least_bytes: int) -> int:
        """Return how many jobs of *user* at *schedd* send *least_bytes* of input or more, or wait to."""
        who = f"schedd {schedd}"
        return int(
            self._call("count_uploads", who, READ_ADVICE, schedd=schedd, user=user, least_bytes=least_bytes)
        )

    # what we show

    def token_folders(self) -> list[Path]:
        """Where HTCondor looks for our IDTOKENS, as it is configured; asks no daemon."""
        return [
            Path(folder) for folder in self._call_for_list("token_folders", "HTCondor's configuration", "")
        ]

    # what users write

    def check_expressions(self, expressions: Mapping[str, str]) -> None:
        """Raise ConfigError for a text that is no ClassAd expression; keys say what it is. Asks no daemon."""
        self._call("parse", "the ClassAd parser", "", expressions=dict(expressions))

    # daemons

    def config_of(
        self, daemon: DaemonKind, names: Iterable[str], name: str | None = None
    ) -> dict[str, str | None]:
        """The daemon's own configuration values, None where it has none; needs READ.

        *name* chooses among several daemons of a kind, of collectors by the address; None takes the first.
        """
        who = f"{daemon} {name}" if name else daemon
        found = self._call("config_of", who, READ_ADVICE, daemon=daemon, names=list(names), name=name)
        return dict(found)

    def ping(self, daemon: DaemonKind, level: str, name: str | None = None) -> Authorization:
        """What *daemon* lets us do: *level* is READ, WRITE, DAEMON, NEGOTIATOR, ADMINISTRATOR, …

        A denial is an answer here, no error.
        """
        who = f"{daemon} {name}" if name else daemon
        try:
            found = self._call("ping", who, "", daemon=daemon, level=level, name=name)
        except PoolDenied as exc:
            identity = re.search(r"knows us as (\S+) \(by (\w*)\)", exc.reason)
            known = (identity[1], identity[2]) if identity else (None, None)
            denied = Authorization(
                level, is_allowed=False, identity=known[0], method=known[1], reason=exc.reason
            )
            return replace(
                denied, token_limit_advice=self._token_limit_advice(level) if known[1] == "IDTOKENS" else ""
            )
        return Authorization(level, bool(found["allowed"]), found["identity"], found["method"])

    # the child

    def _call_for_list(self, call: str, target: str, advice: str, **args: object) -> list[Any]:
        return list(self._call(call, target, advice, **args))

    def _call(self, call: str, target: str, advice: str, **args: object) -> Any:  # noqa: ANN401  (JSON)
        """Ask the child; *advice* is what to do when the daemon, *who*, denies us."""
        seconds = self._settings.timeout.total_seconds() * TIMEOUT_FACTORS.get(call, 1)
        with self._lock:
            try:
                child = self._ensure_child()
                self._last_id += 1
                request = {"id": self._last_id, "call": call, "args": args}
                answer = child.exchange(request, seconds)
            except _ChildUnavailable as exc:
                self._discard_child()
                if call in COLLECTOR_QUERIES:
                    self._first_collector += 1
                raise PoolError(target, str(exc)) from None
        if error := answer.get("error"):
            self._raise_error(error, target, advice)
        return answer["ok"]

    def _raise_error(self, error: Mapping[str, Any], daemon: str, advice: str) -> None:
        who, reason = error["daemon"] or daemon, str(error["reason"]).rstrip(".")
        if error["kind"] == "usage":
            raise ConfigError([reason])
        if error["kind"] == "denied":
            if "none of our credentials" in reason:
                advice = tokens.token_advice(self._settings.token_directory, os.geteuid())
            elif "(by IDTOKENS)" in reason and advice in LEVEL_BY_ADVICE:
                advice = self._token_limit_advice(LEVEL_BY_ADVICE[advice]) or advice
            raise PoolDenied(who, f"{reason}; {advice}" if advice else reason)
        if "determine collector host" in reason:
            reason += "; name it: htcondor.collector (or have htcondor.config_file name it)"
        raise PoolError(who, reason)

    def _token_limit_advice(self, level: str) -> str:
        """Say so where our tokens do not allow *level*; empty where they do, or where that is not known."""
        with suppress(PoolError):
            limited = tokens.token_limits(self.token_folders())
            return (
                tokens.describe_token_limit(limited, level) if tokens.is_level_missing(limited, level) else ""
            )
        return ""

    def _ensure_child(self) -> _Child:
        if self._close_event.is_set():
            raise _ChildUnavailable("the client is closed")
        if self._child is not None and self._child.answer_count >= self._max_calls_of_child:
            self._planned_restarts += 1
            self._discard_child()
        if self._child is None:
            if self._failed_starts:
                self._close_event.wait(min(0.1 * 2 ** (self._failed_starts - 1), MAX_PAUSE_SECONDS))
            self._child = self._start_child()
        return self._child

    def _start_child(self) -> _Child:
        self._start_count += 1
        env = {
            **build_environment(self._settings, os.environ),
            FIRST_COLLECTOR: str(self._first_collector),
        }
        try:
            child = self._starter.submit(_Child, self._command, env).result()
        except (OSError, RuntimeError) as exc:
            raise _ChildUnavailable(f"the HTCondor process could not be started: {exc}") from None
        self._child = child
        child.exchange(None, START_SECONDS)
        return child

    def _discard_child(self) -> None:
        if child := self._child:
            self._child = None
            self._failed_starts = 0 if child.answer_count else self._failed_starts + 1
            child.end()


READ_ADVICE = "it needs READ there, see ALLOW_READ in docs/security.md"
MERGE_ADVICE = "it needs NEGOTIATOR at the collector, see COLLECTOR.ALLOW_NEGOTIATOR and docs/slot-merge.md"
ADVERTISE_ADVICE = "it needs DAEMON at the collector, see COLLECTOR.ALLOW_DAEMON in docs/security.md"
RELEASE_ADVICE = (
    "only a queue super user that the schedd has a user record of (QUEUE_SUPER_USERS, condor_qusers -add) "
    "may edit what PROTECTED_JOB_ATTRS lists, and nobody what IMMUTABLE_JOB_ATTRS lists"
)
DESIRED_SITES_ADVICE = (
    "only a queue super user that the schedd has a user record of may edit other people's jobs "
    "(QUEUE_SUPER_USERS, condor_qusers -add), and nobody what IMMUTABLE_JOB_ATTRS lists: "
    "docs/desired-sites.md"
)
LEVEL_BY_ADVICE = {
    READ_ADVICE: "READ",
    MERGE_ADVICE: "NEGOTIATOR",
    ADVERTISE_ADVICE: "DAEMON",
    RELEASE_ADVICE: "WRITE",
    DESIRED_SITES_ADVICE: "WRITE",
}
"""By advice the authorization level that a call needs."""
