"""The child process: the only code of ours that imports ``htcondor2`` and ``classad2``.

It answers one request a line on the socket it gets as file descriptor 0, each
``{"id": …, "call": …, "args": {…}}``, with one line, ``{"id": …, "ok": …}`` or
``{"id": …, "error": {…}}``. The bindings may print what they like: descriptor 1
is pointed at descriptor 2, which the parent keeps and reads when we fail.

What the bindings say of a failure is one vague sentence; the reason stands in
the security log. So that log is switched on, goes to descriptor 2, is emptied
before each request and read after a failed one.
"""
# ruff: noqa: ANN401  (the bindings have no types)

import ctypes
import json
import os
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from . import desired_sites as jobsites
from .clauses import find_names
from .matchmaking import RESOURCES, JobMatch
from .values import choose_misses_fairly, expression_text, is_plain

PR_SET_PDEATHSIG = 1
SITE_AD_TYPE = "DataLocality"
SITE_AD_ATTRIBUTES = (
    "Name",
    "DataLocalitySite",
    "DataLocalityGeneration",
    "DataLocalityAsOf",
    "DataLocalityTruncated",
    "DataLocalityTrust",
    "DataLocalityVersion",
    "ClassAdLifetime",
    "LastHeardFrom",
    "AuthenticatedIdentity",
)
DAEMON_AD_TYPE = "DataLocalityDaemon"
DAEMON_AD_ATTRIBUTES = (
    "Name",
    "DataLocalityLeadsSince",
    "DataLocalityBeat",
    "LastHeardFrom",
    "AuthenticatedIdentity",
)
SETTLE_SECONDS = 3.0
"""How long an advertisement may take to show: the collector answers queries from forked copies of itself."""
FIRST_COLLECTOR = "HYDRATOR_FIRST_COLLECTOR"
"""In the environment: which of several collectors, counted from 0, is asked first."""
EDITS_AT_ONCE = 1000
_MAX_HEARTBEATS = 100
"""Signs of life of ours that are remembered: one of several collectors may have missed the last ones."""
REMOVED, COMPLETED = 3, 4  # JobStatus
SITE_WIDE_ATTRIBUTES = (
    "AvailableDatasets",
    "DatasetStates",
    "DatasetFractions",
    "DatasetAsOf",
    "DatasetLetters",
)
"""Long attributes, the same on all slots of a site that have one generation."""
MERGE_ATTRIBUTES = (
    "DataLocalitySite",
    *SITE_WIDE_ATTRIBUTES,
    "DataLocalityTruncated",
    "DataLocalityTrust",
    "DataLocalityAsOf",
    "DataLocalityGeneration",
    "DataLocalityVersion",
    "DataLocalityVia",
)
"""What a merge puts into a slot's ad, and what takes it back sets to undefined."""
MATCH_SLOT_ATTRIBUTES = (
    "Name",
    "State",
    "PartitionableSlot",
    "DynamicSlot",
    "Requirements",
    "DataLocalitySite",
    "DataLocalityAsOf",
    "DataLocalityGeneration",
    "DataLocalityVia",
)
MISSES_ATTRIBUTE = "ChirpDataLocalityMisses"
MAX_MISSES = 1000
"""Of one schedd, in one answer; a fair share of each user."""
MAX_ENDED_JOBS = 20_000
"""Ended jobs with misses that are looked at for them."""
NEGOTIATED_UNIVERSES = "JobUniverse =!= 7 && JobUniverse =!= 9 && JobUniverse =!= 12"
"""Jobs that a negotiator sends somewhere: not scheduler, grid and local universe."""
NO_DATA_SLOT = "IsDataSlot =!= true"
"""HTCondor 25 keeps common input files on slots of their own (``data1_1@…``), which run no jobs."""
MAX_COMPLETED_IN_QUEUE_SECONDS = 11 * 86_400
"""Seconds that a completed job may stay in the queue before it is history: 10 days, if it was spooled."""
OUTCOME_ATTRIBUTES = ("GlobalJobId", "QDate", "JobStartDate", "JobCurrentStartDate", "EnteredCurrentStatus")
MAX_JOB_GROUPS = 20
JOB_KIND_ATTRIBUTES = (
    "JobStatus",
    "AutoClusterId",
    "RequiredDatasets",
    "DataLocalityMaxAge",
    "ChirpDataLocalityMissed",
)
"""What tells kinds of jobs of a cluster apart, with their requirements."""
REJECTION_ATTRIBUTES = ("LastRejMatchTime", "LastRejMatchReason")
MAX_REFERENCE_DEPTH = 6
"""How deep the attributes of slots may refer to one another before what is missing counts as undefined."""
ENDED_JOB_ATTRIBUTES = (
    "ClusterId",
    "ProcId",
    "JobStatus",
    "EnteredCurrentStatus",
    "RemoveReason",
    "LastRemoteHost",
)
Ad = dict[str, Any]
SlotQuery = Callable[[Sequence[str], str], list[Any]]
"""Asks for slots: attributes and a constraint."""


class CallError(Exception):
    """What the parent raises: *kind* is ``pool``, ``denied`` or ``usage``."""

    def __init__(self, kind: str, reason: str, daemon: str | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.daemon = daemon


def explain_failure(log: str) -> tuple[str, str] | None:
    """The kind and reason of a failure, from the security log of the request that failed."""
    denied = re.findall(r'"DENIED" from server for user (\S+) using (?:method (\w+)|no)', log)
    if denied and not denied[-1][0].startswith("unauthenticated@"):
        user, method = denied[-1]
        return "denied", f"it knows us as {user} (by {method}) and denies that identity"
    if refused := re.findall(r"attempt to connect to <([^>?]*)[^>]*> failed: ([^(.\n]*)", log):
        address, reason = refused[-1]
        return "pool", f"no connection to {address}: {reason.strip()}"
    tried = re.findall(r"Failed to authenticate using (\w+)|AUTHENTICATE: method \d+ \((\w+)\) failed", log)
    if denied or (tried and "Authentication was a Success" not in log):
        methods = ", ".join(sorted({"".join(pair) for pair in tried})) or "none"
        missing = "; there was no token for this pool" if "No token found" in log else ""
        strangers = " and denies strangers" if denied else ""
        return "denied", f"it accepted none of our credentials (tried {methods}{missing}){strangers}"
    return None


class BindingsServer:
    """The calls that a parent may make; every argument and every answer is JSON."""

    def __init__(self) -> None:
        import classad2
        import htcondor2

        self._classad = classad2
        self._htcondor = htcondor2
        htcondor2.enable_debug("D_SECURITY")
        self._heartbeats: dict[str, deque[int]] = {}

    # what the collector holds

    def site_ads(self) -> list[Ad]:
        return self._query_scalars("Any", SITE_AD_ATTRIBUTES, f'MyType == "{SITE_AD_TYPE}"')

    def advertise(self, ads: Sequence[tuple[str, str]], lifetime: int) -> int | None:
        """Send the ads; answer when the collector heard the last of them by its own clock, None if unseen."""
        made = [self._build_site_ad(name, text, lifetime) for name, text in ads]
        self._send(made, "UPDATE_AD_GENERIC")
        sent = {ad["Name"]: (ad.get("DataLocalityGeneration"), ad.get("DataLocalityAsOf")) for ad in made}

        def shown(ads: list[Ad]) -> bool:
            seen = {ad["Name"]: (ad["DataLocalityGeneration"], ad["DataLocalityAsOf"]) for ad in ads}
            return all(seen.get(name) == what for name, what in sent.items())

        ads_now = self._wait_until_visible(shown)
        return max((ad["LastHeardFrom"] for ad in ads_now if ad["Name"] in sent), default=None)

    def invalidate(self, names: Sequence[str]) -> None:
        self._send([self._build_invalidation(name) for name in names], "INVALIDATE_ADS_GENERIC")
        self._wait_until_visible(lambda ads: not {ad["Name"] for ad in ads} & set(names))

    def heartbeat(self, name: str, leads_since: int, lifetime: int) -> list[Ad]:
        """Tell the collector that a daemon of this name lives; the ads of all, once ours shows.

        Ours says ``Shared`` where another than us has told of this name since we last did.
        """

        def read() -> list[Ad]:
            return self._query_scalars("Any", DAEMON_AD_ATTRIBUTES, f'MyType == "{DAEMON_AD_TYPE}"')

        ours = self._heartbeats.setdefault(name, deque(maxlen=_MAX_HEARTBEATS))
        there = [ad["DataLocalityBeat"] for ad in read() if ad["Name"] == name]
        shared = bool(ours) and any(beat not in ours for beat in there)
        mark = time.time_ns()
        ours.append(mark)
        ad = self._classad.ClassAd()
        ad["MyType"] = DAEMON_AD_TYPE
        ad["Name"] = name
        ad["DataLocalityLeadsSince"] = leads_since
        ad["DataLocalityBeat"] = mark
        ad["ClassAdLifetime"] = lifetime
        self._send([ad], "UPDATE_AD_GENERIC", one_is_enough=True)

        def shown(ads: list[Ad]) -> bool:
            return any(ad["Name"] == name and ad["DataLocalityBeat"] == mark for ad in ads)

        ads = self._wait_until_visible(shown, read)
        if not shown(ads):
            raise CallError("pool", "it took our sign of life and does not show it")
        return [{**ad, "Shared": shared and ad["Name"] == name} for ad in ads]

    def slots(self, attributes: Sequence[str], constraint: str) -> list[Ad]:
        return self._query_scalars("Slot", attributes, constraint)

    def collectors(self) -> list[str]:
        """The addresses of all collectors."""
        return sorted(self._collectors())

    def slots_at(self, collector: str, attributes: Sequence[str], constraint: str) -> list[Ad]:
        """Slots as this one collector has them."""
        self._parse_expression(constraint, "the constraint")
        return [
            self._scalars(ad, attributes) for ad in self._query_ads("Slot", attributes, constraint, collector)
        ]

    def merge(
        self,
        collector: str,
        texts: Mapping[str, str | None],
        slots: Sequence[tuple[str, str, str, int]],
        since: int,
    ) -> list[str]:
        """Merge into slots' ads at *collector*, over one connection; answers the names of those sent.

        A slot whose startd was heard since the caller looked is left alone: its ad may be another one's by
        now, and a merge overwrites the address in it.

        Args:
            collector: the address of one collector.
            texts: by site its ad's lines; None takes everything of ours back.
            slots: name, address, site and LastHeardFrom, as the caller saw them.
            since: the latest LastHeardFrom that the caller saw of any slot.
        """
        looked = self._query_ads(
            "Slot", ["Name", "MyAddress", "LastHeardFrom"], f"LastHeardFrom >= {since}", collector
        )
        heard = {(ad.get("Name"), ad.get("MyAddress")): ad.get("LastHeardFrom") for ad in looked}
        renewed = {name for name, _ in heard}
        contents = {site: self._build_merge_attributes(site, text) for site, text in texts.items()}
        ads = []
        for name, address, site, when in slots:
            if name in renewed and heard.get((name, address)) != when:
                continue
            ad = self._classad.ClassAd()
            for attribute, value in contents[site].items():
                ad[attribute] = value
            ad["Name"] = name
            ad["MyAddress"] = address
            ads.append(ad)
        if ads:
            self._merge_into(collector, ads)
        return [ad["Name"] for ad in ads]

    def _merge_into(self, collector: str, ads: list[Any]) -> None:
        """Send merges; a collector that began to deny us hangs up without a reason, and is asked for one."""
        try:
            self._send_to(collector, ads, "MERGE_STARTD_AD")
        except CallError as failure:
            answer = self.ping("collector", "NEGOTIATOR", collector) if failure.kind == "pool" else None
            if answer is None or answer["allowed"]:
                raise
            reason = f"it knows us as {answer['identity']} (by {answer['method']}) and denies that identity"
            raise CallError("denied", reason, failure.daemon) from failure

    # the schedds

    def schedds(self) -> list[Ad]:
        return self._query_scalars("Schedd", ("Name", "Machine", "CondorVersion"))

    def count_queued_datasets(self, schedd: str) -> list[tuple[list[str], int]]:
        """Jobs by RequiredDatasets, removed and completed ones left out.

        GroupBy answers one ad, with a JobCount, for each combination of the
        projected attributes; its constraint sees these attributes only. All are
        asked for: "isnt undefined" would hide a list that refers to nothing.
        Items of a late-materialization factory that are no jobs yet are seen
        by the factory's cluster ad alone, which has the list of its first
        item: it counts as one job, however many are to come.
        """
        queue = self._schedd(schedd)
        options = self._htcondor.QueryOpt
        counts: dict[tuple[str, ...], int] = {}

        def add(ads: Iterable[Any], jobs: Callable[[Any], int]) -> None:
            for ad in ads:
                if "RequiredDatasets" in ad:
                    datasets = self._read_required_datasets(ad)
                    counts[datasets] = counts.get(datasets, 0) + jobs(ad)

        grouped = queue.query("true", ["RequiredDatasets", "JobStatus"], opts=options.GroupBy)
        live = (ad for ad in grouped if self._scalar(ad, "JobStatus") not in {REMOVED, COMPLETED})
        add(live, lambda ad: self._scalar(ad, "JobCount") or 1)
        factories = queue.query(
            "ProcId is undefined && JobMaterializeDigestFile isnt undefined "
            f"&& JobStatus =!= {REMOVED} && JobStatus =!= {COMPLETED} "
            "&& (TotalSubmitProcs > JobMaterializeNextProcId) =!= false",
            ["RequiredDatasets"],
            opts=options.IncludeClusterAd,
        )
        add(factories, lambda _: 1)
        return [(list(datasets), jobs) for datasets, jobs in sorted(counts.items()) if jobs]

    def release(self, schedd: str, constraint: str) -> int:
        """Set DataLocalityHere to true; counts what the queue shows afterwards.

        A 23.9 schedd that refuses an edit answers as if it had done it.
        """
        queue = self._schedd(schedd)
        self._parse_expression(constraint, "the constraint")
        held_back = (
            f"({constraint}) && DataLocalityTransformed =?= true && DataLocalityHere =!= true "
            f"&& JobStatus =!= {REMOVED} && JobStatus =!= {COMPLETED}"
        )
        ids = ["ClusterId", "ProcId"]
        jobs = [f"{ad['ClusterId']}.{ad['ProcId']}" for ad in queue.query(held_back, ids)]
        for start in range(0, len(jobs), EDITS_AT_ONCE):
            try:
                queue.edit(jobs[start : start + EDITS_AT_ONCE], "DataLocalityHere", "true")
            except self._htcondor.HTCondorException as exc:
                if found := re.search(r"commit transaction: *(.+)", str(exc)):
                    raise CallError("denied", found[1].strip()) from exc
                raise
        left = {f"{ad['ClusterId']}.{ad['ProcId']}" for ad in queue.query(held_back, ids)} if jobs else set()
        if refused := [job for job in jobs if job in left]:
            raise CallError(
                "denied", f"it did not let us edit {len(refused)} of {len(jobs)} jobs ({refused[0]} first)"
            )
        return len(jobs)

    # lists of sites on jobs

    def read_job_groups(self, schedd: str) -> list[Ad]:
        """See :meth:`jobsites.DesiredSitesEditor.read_job_groups`."""
        return self._sites_editor(schedd).read_job_groups()

    def set_desired_sites(
        self, schedd: str, row: Ad, value: str | None, own: str | None, keep: bool, at_most: int
    ) -> int:
        """See :meth:`jobsites.DesiredSitesEditor.set_desired_sites`."""
        with self._translate_rejections():
            return self._sites_editor(schedd).set_desired_sites(row, value, own, keep, at_most)

    def restore_desired_sites(self, schedd: str, constraint: str, asking: bool) -> int:
        """See :meth:`jobsites.DesiredSitesEditor.restore`."""
        self._parse_expression(constraint, "the constraint")
        with self._translate_rejections():
            return self._sites_editor(schedd).restore(constraint, asking)

    def has_user_record(self, schedd: str, user: str) -> bool:
        """Whether the schedd has a record of *user*: without one it counts nobody a queue super user."""
        which = f"User =?= {self._classad.quote(user)}"
        return bool(self._schedd(schedd).queryUserAds(which, ["User"]))

    def _sites_editor(self, schedd: str) -> jobsites.DesiredSitesEditor:
        failure, group_by = self._htcondor.HTCondorException, self._htcondor.QueryOpt.GroupBy
        return jobsites.DesiredSitesEditor(
            self._classad, failure, self._schedd(schedd), group_by, self._read_strings
        )

    @staticmethod
    @contextmanager
    def _translate_rejections() -> Iterator[None]:
        try:
            yield
        except jobsites.EditRejected as refused:
            raise CallError("denied", str(refused)) from refused

    def query_misses(self, schedd: str, since: int) -> list[list[str]]:
        """MISSES of jobs in the queue, and of those that ended after *since* (Unix s), the history's end."""
        queue = self._schedd(schedd)
        which = f"{MISSES_ATTRIBUTE} isnt undefined"
        ads = list(queue.query(which, [MISSES_ATTRIBUTE, "User"]))
        ended = f"EnteredCurrentStatus < {since}"
        ads += queue.history(which, [MISSES_ATTRIBUTE, "User"], MAX_ENDED_JOBS, since=ended)
        reports = ((str(self._scalar(ad, "User")), self._read_strings(ad, MISSES_ATTRIBUTE)) for ad in ads)
        return choose_misses_fairly(reports, MAX_MISSES)

    def outcomes(
        self, schedd: str, since: int, after: str | None, at_most: int, site_attributes: Sequence[str]
    ) -> list[Ad]:
        """Jobs that ended after *since* (Unix s), the last to leave the queue first: where, when, with what.

        History is in the order in which jobs left the queue. With *after*, a
        GlobalJobId, it is read back to that job, else as far as a job that
        ended before *since* may have lain in the queue.
        """
        queue = self._schedd(schedd)
        recorded = [f"MachineAttr{name}0" for name in site_attributes]
        asked = [*OUTCOME_ATTRIBUTES, "RequiredDatasets", "RequiredBytes", MISSES_ATTRIBUTE, *recorded]
        stop = f"EnteredCurrentStatus < {since - MAX_COMPLETED_IN_QUEUE_SECONDS}"
        if after is not None:
            stop = f"GlobalJobId =?= {self._classad.quote(after)} || {stop}"
        which = f"{NEGOTIATED_UNIVERSES} && EnteredCurrentStatus >= {since}"
        ads = queue.history(which, asked, at_most, since=stop)
        return [self._outcome_row(ad, recorded) for ad in ads]

    def last_ended(self, schedd: str) -> str | None:
        """The GlobalJobId of the job that left the queue last."""
        for ad in self._schedd(schedd).history("true", ["GlobalJobId"], 1):
            found = self._scalar(ad, "GlobalJobId")
            return found if isinstance(found, str) else None
        return None

    def _outcome_row(self, ad: Any, machine_attributes: Sequence[str]) -> Ad:
        site = next((name for name in machine_attributes if isinstance(self._scalar(ad, name), str)), None)
        return {
            **self._scalars(ad, OUTCOME_ATTRIBUTES),
            "site": self._scalar(ad, site) if site else None,
            "datasets": list(self._read_required_datasets(ad)) if "RequiredDatasets" in ad else None,
            "bytes": self._input_sizes(ad),
            "misses": self._read_strings(ad, MISSES_ATTRIBUTE),
        }

    def _input_sizes(self, ad: Any) -> dict[str, int]:
        """RequiredBytes, as far as it has whole numbers."""
        with suppress(Exception):
            sizes = ad.eval("RequiredBytes")
            return {
                name: size
                for name, size in sizes.items()
                if isinstance(size, int) and not isinstance(size, bool)
            }
        return {}

    # why a job does not match

    def jobs(self, schedd: str, cluster: int, proc: int | None) -> list[Ad]:
        """The jobs of a cluster, or one: alike jobs together, with their ids, and the text of one's ad.

        Of the kinds beyond JOB_GROUPS_AT_MOST only as much of the ad as was asked of all: ``brief``.
        """
        queue = self._schedd(schedd)
        which = f"ClusterId == {cluster}" + ("" if proc is None else f" && ProcId == {proc}")
        telling = (*JOB_KIND_ATTRIBUTES, "Requirements", "DataLocalityHere")
        alike: dict[tuple[Any, ...], list[int]] = {}
        refused: dict[tuple[Any, ...], tuple[int, str]] = {}
        for ad in queue.query(which, ["ProcId", *REJECTION_ATTRIBUTES, *telling]):
            key = tuple(expression_text(ad, name) if name in ad else None for name in telling)
            alike.setdefault(key, []).append(ad["ProcId"])
            when, reason = (self._scalar(ad, name) for name in REJECTION_ATTRIBUTES)
            if isinstance(when, int) and isinstance(reason, str):
                refused[key] = max(refused.get(key, (0, "")), (when, reason))
        found: list[Ad] = []
        for number, (procs, key) in enumerate(sorted((sorted(procs), key) for key, procs in alike.items())):
            if number < MAX_JOB_GROUPS:
                one = queue.query(f"ClusterId == {cluster} && ProcId == {procs[0]}")
                # the negotiator answers for one job of many alike ones: its last word is that of all
                last = dict(zip(REJECTION_ATTRIBUTES, refused.get(key, ()), strict=False))
                said = {
                    name: self._classad.quote(v) if isinstance(v, str) else str(v) for name, v in last.items()
                }
                found += [
                    {"procs": procs, "ad": {name: expression_text(ad, name) for name in ad} | said}
                    for ad in one
                ]
            else:
                known = zip(JOB_KIND_ATTRIBUTES, key, strict=False)
                brief = {name: text for name, text in known if text is not None}
                found.append({"procs": procs, "ad": {"ClusterId": str(cluster), **brief}, "brief": True})
        return found

    def find_ended_job(self, schedd: str, cluster: int, proc: int | None) -> list[Ad]:
        """What the schedd's history says of a job, or of the last one of a cluster; empty when nothing."""
        which = f"ClusterId == {cluster}" + ("" if proc is None else f" && ProcId == {proc}")
        found = self._schedd(schedd).history(which, list(ENDED_JOB_ATTRIBUTES), 1)
        return [self._scalars(ad, ENDED_JOB_ATTRIBUTES) for ad in found]

    def evaluate_match(
        self,
        job: Mapping[str, str],
        facts: Sequence[str],
        site_attributes: Sequence[str],
        whole: Sequence[str],
        constraint: str,
        flock: Sequence[str],
    ) -> Ad:
        """Evaluate a job against every slot as the negotiator does, clause by clause; alike slots together.

        Args:
            job: the job's ad, the text of each attribute.
            facts: expressions to evaluate for one slot of each group, MY being the job.
            site_attributes: where a slot says its site; the first that it has counts.
            whole: attributes of the job that stay one clause, whatever they are made of.
            constraint: which slots; data slots are none.
            flock: collectors of other pools; their groups say so as ``pool``, and ``unasked`` has the
                reasons of those that could not be asked.
        """
        self._parse_expression(constraint, "the constraint")
        match = JobMatch(self._classad, self._build_job_ad(job), facts, site_attributes, whole)
        wanted = match.collect_slot_attributes()
        ours = self._collectors()
        here = self._fetch_match_slots(
            self._build_slot_query(ours or [""]), wanted, site_attributes, constraint
        )
        known = {self._scalar(ad, "Name") for ad, _ in here}
        answer = match.evaluate_slots(here)
        unasked = {}
        for address in [one for one in flock if one not in ours]:
            try:
                there = self._fetch_match_slots(
                    self._build_slot_query([address]), wanted, site_attributes, constraint
                )
            except CallError as failure:
                unasked[address] = failure.reason
                continue
            slots = [(ad, carrier) for ad, carrier in there if self._scalar(ad, "Name") not in known]
            answer["groups"] += [
                {**group, "pool": address} for group in match.evaluate_slots(slots)["groups"]
            ]
        return {**answer, "unreachable_pools": unasked}

    def _build_slot_query(self, addresses: Sequence[str]) -> SlotQuery:
        """Return a query for slots of all collectors at *addresses*, each slot once.

        A collector that could not be asked is not asked again; one at least must answer.
        """
        left = list(addresses)

        def ask(attributes: Sequence[str], constraint: str) -> list[Any]:
            found: dict[Any, Any] = {}
            silent: dict[str, CallError] = {}
            for address in left:
                try:
                    ads = self._query_ads("Slot", attributes, constraint, address)
                except CallError as failure:
                    silent[address] = failure
                    continue
                for ad in ads:
                    found.setdefault(self._scalar(ad, "Name"), ad)
            if len(silent) == len(left):
                raise silent[left[-1]]
            left[:] = [address for address in left if address not in silent]
            return list(found.values())

        return ask

    def count_uploads(self, schedd: str, user: str, least_bytes: int) -> int:
        """Return how many jobs of *user* send *least_bytes* of input or more, or wait to."""
        which = (
            f"User =?= {self._classad.quote(user)} && (TransferringInput =?= true || TransferQueued =?= true)"
            f" && (TransferInputSizeMB ?: 0) >= {least_bytes // 2**20}"
        )
        return len(self._schedd(schedd).query(which, ["ProcId"]))

    def _fetch_match_slots(
        self, query: SlotQuery, attributes: set[str], site_attributes: Sequence[str], constraint: str
    ) -> list[tuple[Any, Any]]:
        """Slots with all that the expressions refer to, each with the ad that has its site's long attributes.

        Which attributes a slot's own expressions refer to shows only when they are there: so a few rounds.
        """
        totals = [f"TotalSlot{name}" for name in RESOURCES]
        wanted = {
            name.lower()
            for name in (*MATCH_SLOT_ATTRIBUTES, *RESOURCES, *totals, *site_attributes, *attributes)
        }
        long = {name.lower() for name in SITE_WIDE_ATTRIBUTES}
        for _ in range(MAX_REFERENCE_DEPTH):
            slots = query(sorted(wanted - long), constraint)
            referred = {
                name.lower()
                for ad in slots
                for value in ad.values()
                if isinstance(value, self._classad.ExprTree)
                for name in find_names(str(value))
            }
            if referred <= wanted:
                break
            wanted |= referred
        if not wanted & long:
            return [(ad, None) for ad in slots]
        return self._pair_with_site_attributes(query, slots, sorted(wanted & long))

    def _pair_with_site_attributes(
        self, query: SlotQuery, slots: Sequence[Any], long_attributes: Sequence[str]
    ) -> list[tuple[Any, Any]]:
        """Pair slots with the long attributes of their site's generation, which are fetched once."""

        def content(ad: Any) -> tuple[Any, ...]:
            generation = self._scalar(ad, "DataLocalityGeneration")
            name = self._scalar(ad, "Name") if generation is None else None
            return self._scalar(ad, "DataLocalitySite"), generation, name

        examples = {content(ad): ad["Name"] for ad in slots if "DataLocalityGeneration" in ad}
        each = " || ".join(f"Name == {self._classad.quote(name)}" for name in examples.values())
        by_hand = f"DataLocalityGeneration is undefined && ({' || '.join(f'{n} isnt undefined' for n in long_attributes)})"
        asked = ["Name", "DataLocalitySite", "DataLocalityGeneration", *long_attributes]
        carriers = {}
        for ad in query(asked, f"({by_hand})" + (f" || {each}" if each else "")):
            carriers[content(ad)] = ad
        return [(ad, carriers.get(content(ad))) for ad in slots]

    def _build_job_ad(self, texts: Mapping[str, str]) -> Any:
        ad = self._classad.ClassAd()
        for name, text in texts.items():
            ad[name] = self._parse_expression(text, f"{name} of the job")
        return ad

    # what we show

    def token_folders(self) -> list[str]:
        """Where HTCondor looks for our IDTOKENS; asks no daemon."""
        names = ["SEC_TOKEN_DIRECTORY", *(["SEC_TOKEN_SYSTEM_DIRECTORY"] if os.geteuid() == 0 else [])]
        folders = [self._htcondor.param.get(name, "") for name in names]
        home = os.path.expanduser("~/.condor/tokens.d")  # noqa: PTH111 - HTCondor's default, as text
        return [folder or home for folder in folders if folder or os.geteuid() != 0]

    # what users write

    def parse(self, expressions: Mapping[str, str]) -> None:
        """See whether the texts, by what they are, are expressions, also in parentheses with others."""
        for what, text in expressions.items():
            self._parse_expression(text, what)
            self._parse_expression(f"({text})", what)

    # daemons

    def config_of(self, daemon: str, names: Sequence[str], name: str | None) -> dict[str, str | None]:
        known = self._htcondor.RemoteParam(self._locate(daemon, name))
        spelling = {key.upper(): key for key in known}
        return {want: known[spelling[want.upper()]] if want.upper() in spelling else None for want in names}

    def ping(self, daemon: str, level: str, name: str | None) -> Ad:
        ad = self._htcondor.ping(self._locate(daemon, name), level)
        return {
            "identity": self._scalar(ad, "MyRemoteUserName"),
            "method": self._scalar(ad, "AuthMethods"),
            "allowed": self._scalar(ad, "AuthorizationSucceeded") is True,
        }

    # helpers

    def _query_ads(
        self, ad_type: str, attributes: Sequence[str], constraint: str, collector: str | None = None
    ) -> list[Any]:
        """Ads from the first collector that answers, or from *collector*."""
        kind = getattr(self._htcondor.AdType, ad_type)
        constraint = f"({constraint}) && {NO_DATA_SLOT}" if ad_type == "Slot" else constraint
        failures = []
        asked = [collector] if collector else self._collectors() or [""]
        for address in asked:
            try:
                return list(
                    self._htcondor.Collector(address or None).query(kind, constraint, list(attributes))
                )
            except self._htcondor.HTCondorException as exc:
                failures.append((explain_failure(read_log()) or ("pool", str(exc)), exc))
        where = f"collector {', '.join(asked)}".strip()
        failure, cause = failures[-1]
        raise CallError(*failure, where) from cause

    def _collectors(self) -> list[str]:
        """The addresses of all collectors, those first that did not hang when they were asked last.

        The bindings would choose one by chance and wait for it, longer than our parent waits for us.
        """
        found = re.split(r"[,\s]+", self._htcondor.param.get("COLLECTOR_HOST", ""))
        addresses = [address for address in found if address]
        first = int(os.environ.get(FIRST_COLLECTOR, "0")) % max(1, len(addresses))
        return addresses[first:] + addresses[:first]

    def _send(self, ads: list[Any], command: str, *, one_is_enough: bool = False) -> None:
        """Send *ads* to every collector.

        Raises:
            Failed: one of them took nothing; with *one_is_enough*, none of them took it.
        """
        collectors = self._collectors()
        if not collectors:
            raise CallError("pool", "no collector is configured (COLLECTOR_HOST)")
        failures = []
        for address in collectors:
            try:
                self._send_to(address, ads, command)
            except CallError as failure:
                failures.append(failure)
        if failures and not (one_is_enough and len(failures) < len(collectors)):
            raise failures[0]

    def _send_to(self, address: str, ads: list[Any], command: str) -> None:
        try:
            self._htcondor.Collector(address).advertise(ads, command)
        except self._htcondor.HTCondorException as exc:
            kind, reason = explain_failure(read_log()) or ("pool", str(exc))
            raise CallError(kind, reason, f"collector {address}") from exc

    def _wait_until_visible(
        self, is_visible: Callable[[list[Ad]], bool], read_ads: Callable[[], list[Ad]] | None = None
    ) -> list[Ad]:
        """Ask until *done* or for SETTLE_SECONDS: an update is acknowledged by nobody."""
        deadline = time.monotonic() + SETTLE_SECONDS
        pause = 0.01
        while True:
            ads = (read_ads or self.site_ads)()
            if is_visible(ads) or time.monotonic() > deadline:
                return ads
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _build_site_ad(self, name: str, text: str, lifetime: int) -> Any:
        ad = self._classad.ClassAd()
        for line in text.splitlines():
            attribute, _, literal = line.partition(" = ")
            ad[attribute] = self._parse_expression(literal, f"{attribute} of site {name}")
        ad["MyType"] = SITE_AD_TYPE
        ad["Name"] = name
        ad["ClassAdLifetime"] = lifetime
        return ad

    def _build_merge_attributes(self, site: str, text: str | None) -> dict[str, Any]:
        """What a merge says of *site*; what is long in parentheses, so that a collector keeps it once."""
        if text is None:
            return dict.fromkeys(MERGE_ATTRIBUTES, self._classad.Value.Undefined)
        found: dict[str, Any] = {"DataLocalityVia": "merge"}
        for line in text.splitlines():
            attribute, _, literal = line.partition(" = ")
            shared = f"({literal})" if attribute in SITE_WIDE_ATTRIBUTES else literal
            found[attribute] = self._parse_expression(shared, f"{attribute} of site {site}")
        return found

    def _build_invalidation(self, name: str) -> Any:
        """A query ad for INVALIDATE_ADS_GENERIC: TargetType is the type of the ads to go, not "Generic"."""
        ad = self._classad.ClassAd()
        ad["MyType"] = "Query"
        ad["TargetType"] = SITE_AD_TYPE
        ad["Name"] = name
        ad["Requirements"] = self._classad.ExprTree(f"Name =?= {self._classad.quote(name)}")
        return ad

    def _query_scalars(self, ad_type: str, attributes: Sequence[str], constraint: str = "true") -> list[Ad]:
        self._parse_expression(constraint, "the constraint")
        return [self._scalars(ad, attributes) for ad in self._query_ads(ad_type, attributes, constraint)]

    def _locate(self, daemon: str, name: str | None) -> Any:
        if daemon == "collector" and name is not None:
            return self._find_collector_ad(name)
        kinds = {"startd": "StartDaemon", "slot": "Slot", "schedd": "Schedd", "negotiator": "Negotiator"}
        kind = kinds.get(daemon, daemon.capitalize())
        constraint = "true" if name is None else f"Name =?= {self._classad.quote(name)}"
        attributes = ["Name", "MyAddress", "MyType", "CondorVersion", "AddressV1"]
        found = [ad for ad in self._query_ads(kind, attributes, constraint) if "MyAddress" in ad]
        if not found:
            raise CallError(
                "pool", "the collector knows none" if name is None else "the collector does not know it"
            )
        return min(found, key=lambda ad: str(ad.get("Name", "")))

    def _find_collector_ad(self, address: str) -> Any:
        """The ad of the collector at *address*, as it says itself; a parent may know its children too."""
        attributes = ["Name", "MyAddress", "MyType", "CondorVersion", "AddressV1"]
        found = [ad for ad in self._query_ads("Collector", attributes, "true", address) if "MyAddress" in ad]
        port = address.rpartition(":")[2]
        own = [ad for ad in found if re.search(rf":{re.escape(port)}\b", str(ad["MyAddress"]))]
        if not found:
            raise CallError("pool", "it has no ad of itself", f"collector {address}")
        return (own or found)[0]

    def _schedd(self, name: str) -> Any:
        return self._htcondor.Schedd(self._locate("schedd", name))

    def _read_required_datasets(self, ad: Any) -> tuple[str, ...]:
        """The strings of RequiredDatasets; its text, which is no DID, where it is no list of strings."""
        with suppress(Exception):
            value = ad.eval("RequiredDatasets")
            if isinstance(value, list):
                items = [
                    item.eval(ad) if isinstance(item, self._classad.ExprTree) else item for item in value
                ]
                if items and all(isinstance(item, str) for item in items):
                    return tuple(items)
        return (f"RequiredDatasets = {expression_text(ad, 'RequiredDatasets')}",)

    def _read_strings(self, ad: Any, attribute: str) -> list[str]:
        """The strings in a list; a job's owner may have written anything there."""
        with suppress(Exception):
            value = ad.eval(attribute)
            return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
        return []

    def _scalars(self, ad: Any, attributes: Sequence[str]) -> Ad:
        return {attribute: self._scalar(ad, attribute) for attribute in attributes}

    def _scalar(self, ad: Any, attribute: str) -> Any:
        """A literal as itself, undefined as None, any other expression as its text."""
        try:
            value = ad[attribute]
        except KeyError:
            return None
        except Exception:  # noqa: BLE001  (bytes that are no UTF-8 raise SystemError here)
            return expression_text(ad, attribute)
        if is_plain(value):
            return value
        if value is self._classad.Value.Undefined:
            return None
        return expression_text(ad, attribute)

    def _parse_expression(self, text: str, description: str) -> Any:
        try:
            return self._classad.ExprTree(text)
        except Exception as exc:
            raise CallError("usage", f"{description} is not a ClassAd expression: {text[:200]}") from exc


def read_log() -> str:
    """What descriptor 2 took since this request began, where it is a file."""
    with suppress(OSError):
        return os.pread(2, 200_000, 0).decode("utf-8", "replace")
    return ""


def answer(server: BindingsServer, request: Mapping[str, Any]) -> dict[str, Any]:
    """Make one call; every failure becomes an answer."""
    with suppress(OSError):
        os.ftruncate(2, 0)
    try:
        return {"ok": getattr(server, request["call"])(**request["args"])}
    except CallError as exc:
        return {"error": {"kind": exc.kind, "reason": exc.reason, "daemon": exc.daemon}}
    except Exception as exc:  # noqa: BLE001  (whatever the bindings raise, the parent decides)
        kind, reason = explain_failure(read_log()) or ("pool", f"{exc}" or type(exc).__name__)
        return {"error": {"kind": kind, "reason": reason, "daemon": None}}


def die_with_parent() -> None:
    """Let the kernel end us when the thread that started us ends, also while C++ code blocks."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def take_channel() -> socket.socket:
    """The socket on descriptor 0, moved where nothing that prints or reads can reach it."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return channel


def main() -> NoReturn:
    """Answer requests until the parent closes its end."""
    die_with_parent()
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the parent decides when we end
        signal.signal(ignored, signal.SIG_IGN)
    channel = take_channel()
    pool = BindingsServer()
    with channel, channel.makefile("rb") as requests:
        channel.sendall(b'{"id": 0, "ok": "ready"}\n')
        for line in requests:
            request = json.loads(line)
            reply = {"id": request["id"], **answer(pool, request)}
            channel.sendall(json.dumps(reply).encode() + b"\n")
    sys.exit(0)


if __name__ == "__main__":
    main()
