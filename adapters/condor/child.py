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

from . import jobsites
from .clauses import names
from .match import RESOURCES, Match
from .values import fair_misses, plain, unparsed

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
_BEATS = 100
"""Signs of life of ours that are remembered: one of several collectors may have missed the last ones."""
REMOVED, COMPLETED = 3, 4  # JobStatus
SITE_WIDE = ("AvailableDatasets", "DatasetStates", "DatasetFractions", "DatasetAsOf", "DatasetLetters")
"""Long attributes, the same on all slots of a site that have one generation."""
OF_A_MERGE = (
    "DataLocalitySite",
    *SITE_WIDE,
    "DataLocalityTruncated",
    "DataLocalityTrust",
    "DataLocalityAsOf",
    "DataLocalityGeneration",
    "DataLocalityVersion",
    "DataLocalityVia",
)
"""What a merge puts into a slot's ad, and what takes it back sets to undefined."""
OF_A_SLOT = (
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
MISSES = "ChirpDataLocalityMisses"
MISSES_AT_MOST = 1000
"""Of one schedd, in one answer; a fair share of each user."""
ENDED_AT_MOST = 20_000
"""Ended jobs with misses that are looked at for them."""
NOT_MATCHED = "JobUniverse =!= 7 && JobUniverse =!= 9 && JobUniverse =!= 12"
"""Jobs that a negotiator sends somewhere: not scheduler, grid and local universe."""
NOT_DEFINED = "Not defined"
"""What a daemon answers for a setting that HTCondor knows and nobody set."""
NO_DATA_SLOT = "IsDataSlot =!= true"
"""HTCondor 25 keeps common input files on slots of their own (``data1_1@…``), which run no jobs."""
LEFT_IN_QUEUE = 11 * 86_400
"""Seconds that a completed job may stay in the queue before it is history: 10 days, if it was spooled."""
OF_AN_OUTCOME = ("GlobalJobId", "QDate", "JobStartDate", "JobCurrentStartDate", "EnteredCurrentStatus")
JOB_GROUPS_AT_MOST = 20
TELLING_OF_A_KIND = (
    "JobStatus",
    "AutoClusterId",
    "RequiredDatasets",
    "DataLocalityMaxAge",
    "ChirpDataLocalityMissed",
)
"""What tells kinds of jobs of a cluster apart, with their requirements."""
REFUSAL = ("LastRejMatchTime", "LastRejMatchReason")
ROUNDS = 6
"""How deep the attributes of slots may refer to one another before what is missing counts as undefined."""
OF_AN_ENDED_JOB = (
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


class Failed(Exception):
    """What the parent raises: *kind* is ``pool``, ``denied`` or ``usage``."""

    def __init__(self, kind: str, reason: str, daemon: str | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.daemon = daemon


def explain(log: str) -> tuple[str, str] | None:
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


class Pool:
    """The calls that a parent may make; every argument and every answer is JSON."""

    def __init__(self) -> None:
        import classad2
        import htcondor2

        self._classad = classad2
        self._htcondor = htcondor2
        htcondor2.enable_debug("D_SECURITY")
        self._beats: dict[str, deque[int]] = {}

    # what the collector holds

    def site_ads(self) -> list[Ad]:
        return self._query("Any", SITE_AD_ATTRIBUTES, f'MyType == "{SITE_AD_TYPE}"')

    def advertise(self, ads: Sequence[tuple[str, str]], lifetime: int) -> int | None:
        """Send the ads; answer when the collector heard the last of them by its own clock, None if unseen."""
        made = [self._site_ad(name, text, lifetime) for name, text in ads]
        self._send(made, "UPDATE_AD_GENERIC")
        sent = {ad["Name"]: (ad.get("DataLocalityGeneration"), ad.get("DataLocalityAsOf")) for ad in made}

        def shown(ads: list[Ad]) -> bool:
            seen = {ad["Name"]: (ad["DataLocalityGeneration"], ad["DataLocalityAsOf"]) for ad in ads}
            return all(seen.get(name) == what for name, what in sent.items())

        ads_now = self._settle(shown)
        return max((ad["LastHeardFrom"] for ad in ads_now if ad["Name"] in sent), default=None)

    def invalidate(self, names: Sequence[str]) -> None:
        self._send([self._farewell(name) for name in names], "INVALIDATE_ADS_GENERIC")
        self._settle(lambda ads: not {ad["Name"] for ad in ads} & set(names))

    def beat(self, name: str, leads_since: int, lifetime: int) -> list[Ad]:
        """Tell the collector that a daemon of this name lives; the ads of all, once ours shows.

        Ours says ``Shared`` where another than us has told of this name since we last did.
        """

        def read() -> list[Ad]:
            return self._query("Any", DAEMON_AD_ATTRIBUTES, f'MyType == "{DAEMON_AD_TYPE}"')

        ours = self._beats.setdefault(name, deque(maxlen=_BEATS))
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

        ads = self._settle(shown, read)
        if not shown(ads):
            raise Failed("pool", "it took our sign of life and does not show it")
        return [{**ad, "Shared": shared and ad["Name"] == name} for ad in ads]

    def slots(self, attributes: Sequence[str], constraint: str) -> list[Ad]:
        return self._query("Slot", attributes, constraint)

    def collectors(self) -> list[str]:
        """The addresses of all collectors."""
        return sorted(self._collectors())

    def slots_at(self, collector: str, attributes: Sequence[str], constraint: str) -> list[Ad]:
        """Slots as this one collector has them."""
        self._expression(constraint, "the constraint")
        return [self._plain(ad, attributes) for ad in self._ask("Slot", attributes, constraint, collector)]

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
        looked = self._ask(
            "Slot", ["Name", "MyAddress", "LastHeardFrom"], f"LastHeardFrom >= {since}", collector
        )
        heard = {(ad.get("Name"), ad.get("MyAddress")): ad.get("LastHeardFrom") for ad in looked}
        renewed = {name for name, _ in heard}
        contents = {site: self._merged(site, text) for site, text in texts.items()}
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
        except Failed as failure:
            answer = self.ping("collector", "NEGOTIATOR", collector) if failure.kind == "pool" else None
            if answer is None or answer["allowed"]:
                raise
            reason = f"it knows us as {answer['identity']} (by {answer['method']}) and denies that identity"
            raise Failed("denied", reason, failure.daemon) from failure

    # the schedds

    def schedds(self) -> list[Ad]:
        return self._query("Schedd", ("Name", "Machine", "CondorVersion"))

    def queued_datasets(self, schedd: str) -> list[tuple[list[str], int]]:
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
                    datasets = self._datasets(ad)
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
        self._expression(constraint, "the constraint")
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
                    raise Failed("denied", found[1].strip()) from exc
                raise
        left = {f"{ad['ClusterId']}.{ad['ProcId']}" for ad in queue.query(held_back, ids)} if jobs else set()
        if refused := [job for job in jobs if job in left]:
            raise Failed(
                "denied", f"it did not let us edit {len(refused)} of {len(jobs)} jobs ({refused[0]} first)"
            )
        return len(jobs)

    # lists of sites on jobs

    def alike_jobs(self, schedd: str) -> list[Ad]:
        """See :meth:`jobsites.QueuedSites.alike`."""
        return self._sites_of(schedd).alike()

    def place_jobs(
        self, schedd: str, row: Ad, value: str | None, own: str | None, keep: bool, at_most: int
    ) -> int:
        """See :meth:`jobsites.QueuedSites.place`."""
        with self._refusals():
            return self._sites_of(schedd).place(row, value, own, keep, at_most)

    def restore_jobs(self, schedd: str, constraint: str, asking: bool) -> int:
        """See :meth:`jobsites.QueuedSites.restore`."""
        self._expression(constraint, "the constraint")
        with self._refusals():
            return self._sites_of(schedd).restore(constraint, asking)

    def user_record(self, schedd: str, user: str) -> bool:
        """Whether the schedd has a record of *user*: without one it counts nobody a queue super user."""
        which = f"User =?= {self._classad.quote(user)}"
        return bool(self._schedd(schedd).queryUserAds(which, ["User"]))

    def _sites_of(self, schedd: str) -> jobsites.QueuedSites:
        failure, group_by = self._htcondor.HTCondorException, self._htcondor.QueryOpt.GroupBy
        return jobsites.QueuedSites(self._classad, failure, self._schedd(schedd), group_by, self._strings)

    @staticmethod
    @contextmanager
    def _refusals() -> Iterator[None]:
        try:
            yield
        except jobsites.Refused as refused:
            raise Failed("denied", str(refused)) from refused

    def reported_misses(self, schedd: str, since: int) -> list[list[str]]:
        """MISSES of jobs in the queue, and of those that ended after *since* (Unix s), the history's end."""
        queue = self._schedd(schedd)
        which = f"{MISSES} isnt undefined"
        ads = list(queue.query(which, [MISSES, "User"]))
        ended = f"EnteredCurrentStatus < {since}"
        ads += queue.history(which, [MISSES, "User"], ENDED_AT_MOST, since=ended)
        reports = ((str(self._scalar(ad, "User")), self._strings(ad, MISSES)) for ad in ads)
        return fair_misses(reports, MISSES_AT_MOST)

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
        asked = [*OF_AN_OUTCOME, "RequiredDatasets", "RequiredBytes", MISSES, *recorded]
        stop = f"EnteredCurrentStatus < {since - LEFT_IN_QUEUE}"
        if after is not None:
            stop = f"GlobalJobId =?= {self._classad.quote(after)} || {stop}"
        which = f"{NOT_MATCHED} && EnteredCurrentStatus >= {since}"
        ads = queue.history(which, asked, at_most, since=stop)
        return [self._outcome(ad, recorded) for ad in ads]

    def last_ended(self, schedd: str) -> str | None:
        """The GlobalJobId of the job that left the queue last."""
        for ad in self._schedd(schedd).history("true", ["GlobalJobId"], 1):
            found = self._scalar(ad, "GlobalJobId")
            return found if isinstance(found, str) else None
        return None

    def _outcome(self, ad: Any, recorded: Sequence[str]) -> Ad:
        site = next((name for name in recorded if isinstance(self._scalar(ad, name), str)), None)
        return {
            **self._plain(ad, OF_AN_OUTCOME),
            "site": self._scalar(ad, site) if site else None,
            "datasets": list(self._datasets(ad)) if "RequiredDatasets" in ad else None,
            "bytes": self._sizes(ad),
            "misses": self._strings(ad, MISSES),
        }

    def _sizes(self, ad: Any) -> dict[str, int]:
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
        telling = (*TELLING_OF_A_KIND, "Requirements", "DataLocalityHere")
        alike: dict[tuple[Any, ...], list[int]] = {}
        refused: dict[tuple[Any, ...], tuple[int, str]] = {}
        for ad in queue.query(which, ["ProcId", *REFUSAL, *telling]):
            key = tuple(unparsed(ad, name) if name in ad else None for name in telling)
            alike.setdefault(key, []).append(ad["ProcId"])
            when, reason = (self._scalar(ad, name) for name in REFUSAL)
            if isinstance(when, int) and isinstance(reason, str):
                refused[key] = max(refused.get(key, (0, "")), (when, reason))
        found: list[Ad] = []
        for number, (procs, key) in enumerate(sorted((sorted(procs), key) for key, procs in alike.items())):
            if number < JOB_GROUPS_AT_MOST:
                one = queue.query(f"ClusterId == {cluster} && ProcId == {procs[0]}")
                # the negotiator answers for one job of many alike ones: its last word is that of all
                last = dict(zip(REFUSAL, refused.get(key, ()), strict=False))
                said = {
                    name: self._classad.quote(v) if isinstance(v, str) else str(v) for name, v in last.items()
                }
                found += [
                    {"procs": procs, "ad": {name: unparsed(ad, name) for name in ad} | said} for ad in one
                ]
            else:
                known = zip(TELLING_OF_A_KIND, key, strict=False)
                brief = {name: text for name, text in known if text is not None}
                found.append({"procs": procs, "ad": {"ClusterId": str(cluster), **brief}, "brief": True})
        return found

    def ended(self, schedd: str, cluster: int, proc: int | None) -> list[Ad]:
        """What the schedd's history says of a job, or of the last one of a cluster; empty when nothing."""
        which = f"ClusterId == {cluster}" + ("" if proc is None else f" && ProcId == {proc}")
        found = self._schedd(schedd).history(which, list(OF_AN_ENDED_JOB), 1)
        return [self._plain(ad, OF_AN_ENDED_JOB) for ad in found]

    def judge(
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
        self._expression(constraint, "the constraint")
        match = Match(self._classad, self._ad(job), facts, site_attributes, whole)
        wanted = match.asked_of_slots()
        ours = self._collectors()
        here = self._slots_to_judge(self._from_all(ours or [""]), wanted, site_attributes, constraint)
        known = {self._scalar(ad, "Name") for ad, _ in here}
        answer = match.answer(here)
        unasked = {}
        for address in [one for one in flock if one not in ours]:
            try:
                there = self._slots_to_judge(self._from_all([address]), wanted, site_attributes, constraint)
            except Failed as failure:
                unasked[address] = failure.reason
                continue
            slots = [(ad, carrier) for ad, carrier in there if self._scalar(ad, "Name") not in known]
            answer["groups"] += [{**group, "pool": address} for group in match.answer(slots)["groups"]]
        return {**answer, "unasked": unasked}

    def _from_all(self, addresses: Sequence[str]) -> SlotQuery:
        """Return a query for slots of all collectors at *addresses*, each slot once.

        A collector that could not be asked is not asked again; one at least must answer.
        """
        left = list(addresses)

        def ask(attributes: Sequence[str], constraint: str) -> list[Any]:
            found: dict[Any, Any] = {}
            silent: dict[str, Failed] = {}
            for address in left:
                try:
                    ads = self._ask("Slot", attributes, constraint, address)
                except Failed as failure:
                    silent[address] = failure
                    continue
                for ad in ads:
                    found.setdefault(self._scalar(ad, "Name"), ad)
            if len(silent) == len(left):
                raise silent[left[-1]]
            left[:] = [address for address in left if address not in silent]
            return list(found.values())

        return ask

    def uploads(self, schedd: str, user: str, least_bytes: int) -> int:
        """Return how many jobs of *user* send *least_bytes* of input or more, or wait to."""
        which = (
            f"User =?= {self._classad.quote(user)} && (TransferringInput =?= true || TransferQueued =?= true)"
            f" && (TransferInputSizeMB ?: 0) >= {least_bytes // 2**20}"
        )
        return len(self._schedd(schedd).query(which, ["ProcId"]))

    def _slots_to_judge(
        self, ask: SlotQuery, first: set[str], site_attributes: Sequence[str], constraint: str
    ) -> list[tuple[Any, Any]]:
        """Slots with all that the expressions refer to, each with the ad that has its site's long attributes.

        Which attributes a slot's own expressions refer to shows only when they are there: so a few rounds.
        """
        totals = [f"TotalSlot{name}" for name in RESOURCES]
        wanted = {name.lower() for name in (*OF_A_SLOT, *RESOURCES, *totals, *site_attributes, *first)}
        long = {name.lower() for name in SITE_WIDE}
        for _ in range(ROUNDS):
            slots = ask(sorted(wanted - long), constraint)
            referred = {
                name.lower()
                for ad in slots
                for value in ad.values()
                if isinstance(value, self._classad.ExprTree)
                for name in names(str(value))
            }
            if referred <= wanted:
                break
            wanted |= referred
        if not wanted & long:
            return [(ad, None) for ad in slots]
        return self._with_long(ask, slots, sorted(wanted & long))

    def _with_long(self, ask: SlotQuery, slots: Sequence[Any], long: Sequence[str]) -> list[tuple[Any, Any]]:
        """Pair slots with the long attributes of their site's generation, which are fetched once."""

        def content(ad: Any) -> tuple[Any, ...]:
            generation = self._scalar(ad, "DataLocalityGeneration")
            name = self._scalar(ad, "Name") if generation is None else None
            return self._scalar(ad, "DataLocalitySite"), generation, name

        examples = {content(ad): ad["Name"] for ad in slots if "DataLocalityGeneration" in ad}
        each = " || ".join(f"Name == {self._classad.quote(name)}" for name in examples.values())
        by_hand = (
            f"DataLocalityGeneration is undefined && ({' || '.join(f'{n} isnt undefined' for n in long)})"
        )
        asked = ["Name", "DataLocalitySite", "DataLocalityGeneration", *long]
        carriers = {}
        for ad in ask(asked, f"({by_hand})" + (f" || {each}" if each else "")):
            carriers[content(ad)] = ad
        return [(ad, carriers.get(content(ad))) for ad in slots]

    def _ad(self, texts: Mapping[str, str]) -> Any:
        ad = self._classad.ClassAd()
        for name, text in texts.items():
            ad[name] = self._expression(text, f"{name} of the job")
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
            self._expression(text, what)
            self._expression(f"({text})", what)

    # daemons

    def config_of(self, daemon: str, names: Sequence[str], name: str | None) -> dict[str, str | None]:
        known = self._htcondor.RemoteParam(self._locate(daemon, name))
        spelling = {key.upper(): key for key in known}
        values = {want: known[spelling[want.upper()]] for want in names if want.upper() in spelling}
        return {want: None if values.get(want) == NOT_DEFINED else values.get(want) for want in names}

    def ping(self, daemon: str, level: str, name: str | None) -> Ad:
        ad = self._htcondor.ping(self._locate(daemon, name), level)
        return {
            "identity": self._scalar(ad, "MyRemoteUserName"),
            "method": self._scalar(ad, "AuthMethods"),
            "allowed": self._scalar(ad, "AuthorizationSucceeded") is True,
        }

    # helpers

    def _ask(
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
                failures.append((explain(read_log()) or ("pool", str(exc)), exc))
        where = f"collector {', '.join(asked)}".strip()
        failure, cause = failures[-1]
        raise Failed(*failure, where) from cause

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
            raise Failed("pool", "no collector is configured (COLLECTOR_HOST)")
        failures = []
        for address in collectors:
            try:
                self._send_to(address, ads, command)
            except Failed as failure:
                failures.append(failure)
        if failures and not (one_is_enough and len(failures) < len(collectors)):
            raise failures[0]

    def _send_to(self, address: str, ads: list[Any], command: str) -> None:
        try:
            self._htcondor.Collector(address).advertise(ads, command)
        except self._htcondor.HTCondorException as exc:
            kind, reason = explain(read_log()) or ("pool", str(exc))
            raise Failed(kind, reason, f"collector {address}") from exc

    def _settle(
        self, done: Callable[[list[Ad]], bool], read: Callable[[], list[Ad]] | None = None
    ) -> list[Ad]:
        """Ask until *done* or for SETTLE_SECONDS: an update is acknowledged by nobody."""
        deadline = time.monotonic() + SETTLE_SECONDS
        pause = 0.01
        while True:
            ads = (read or self.site_ads)()
            if done(ads) or time.monotonic() > deadline:
                return ads
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _site_ad(self, name: str, text: str, lifetime: int) -> Any:
        ad = self._classad.ClassAd()
        for line in text.splitlines():
            attribute, _, literal = line.partition(" = ")
            ad[attribute] = self._expression(literal, f"{attribute} of site {name}")
        ad["MyType"] = SITE_AD_TYPE
        ad["Name"] = name
        ad["ClassAdLifetime"] = lifetime
        return ad

    def _merged(self, site: str, text: str | None) -> dict[str, Any]:
        """What a merge says of *site*; what is long in parentheses, so that a collector keeps it once."""
        if text is None:
            return dict.fromkeys(OF_A_MERGE, self._classad.Value.Undefined)
        found: dict[str, Any] = {"DataLocalityVia": "merge"}
        for line in text.splitlines():
            attribute, _, literal = line.partition(" = ")
            shared = f"({literal})" if attribute in SITE_WIDE else literal
            found[attribute] = self._expression(shared, f"{attribute} of site {site}")
        return found

    def _farewell(self, name: str) -> Any:
        """A query ad for INVALIDATE_ADS_GENERIC: TargetType is the type of the ads to go, not "Generic"."""
        ad = self._classad.ClassAd()
        ad["MyType"] = "Query"
        ad["TargetType"] = SITE_AD_TYPE
        ad["Name"] = name
        ad["Requirements"] = self._classad.ExprTree(f"Name =?= {self._classad.quote(name)}")
        return ad

    def _query(self, ad_type: str, attributes: Sequence[str], constraint: str = "true") -> list[Ad]:
        self._expression(constraint, "the constraint")
        return [self._plain(ad, attributes) for ad in self._ask(ad_type, attributes, constraint)]

    def _locate(self, daemon: str, name: str | None) -> Any:
        if daemon == "collector" and name is not None:
            return self._collector_at(name)
        kinds = {"startd": "StartDaemon", "slot": "Slot", "schedd": "Schedd", "negotiator": "Negotiator"}
        kind = kinds.get(daemon, daemon.capitalize())
        constraint = "true" if name is None else f"Name =?= {self._classad.quote(name)}"
        attributes = ["Name", "MyAddress", "MyType", "CondorVersion", "AddressV1"]
        found = [ad for ad in self._ask(kind, attributes, constraint) if "MyAddress" in ad]
        if not found:
            raise Failed(
                "pool", "the collector knows none" if name is None else "the collector does not know it"
            )
        return min(found, key=lambda ad: str(ad.get("Name", "")))

    def _collector_at(self, address: str) -> Any:
        """The ad of the collector at *address*, as it says itself; a parent may know its children too."""
        attributes = ["Name", "MyAddress", "MyType", "CondorVersion", "AddressV1"]
        found = [ad for ad in self._ask("Collector", attributes, "true", address) if "MyAddress" in ad]
        port = address.rpartition(":")[2]
        own = [ad for ad in found if re.search(rf":{re.escape(port)}\b", str(ad["MyAddress"]))]
        if not found:
            raise Failed("pool", "it has no ad of itself", f"collector {address}")
        return (own or found)[0]

    def _schedd(self, name: str) -> Any:
        return self._htcondor.Schedd(self._locate("schedd", name))

    def _datasets(self, ad: Any) -> tuple[str, ...]:
        """The strings of RequiredDatasets; its text, which is no DID, where it is no list of strings."""
        with suppress(Exception):
            value = ad.eval("RequiredDatasets")
            if isinstance(value, list):
                items = [
                    item.eval(ad) if isinstance(item, self._classad.ExprTree) else item for item in value
                ]
                if items and all(isinstance(item, str) for item in items):
                    return tuple(items)
        return (f"RequiredDatasets = {unparsed(ad, 'RequiredDatasets')}",)

    def _strings(self, ad: Any, attribute: str) -> list[str]:
        """The strings in a list; a job's owner may have written anything there."""
        with suppress(Exception):
            value = ad.eval(attribute)
            return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
        return []

    def _plain(self, ad: Any, attributes: Sequence[str]) -> Ad:
        return {attribute: self._scalar(ad, attribute) for attribute in attributes}

    def _scalar(self, ad: Any, attribute: str) -> Any:
        """A literal as itself, undefined as None, any other expression as its text."""
        try:
            value = ad[attribute]
        except KeyError:
            return None
        except Exception:  # noqa: BLE001  (bytes that are no UTF-8 raise SystemError here)
            return unparsed(ad, attribute)
        if plain(value):
            return value
        if value is self._classad.Value.Undefined:
            return None
        return unparsed(ad, attribute)

    def _expression(self, text: str, what: str) -> Any:
        try:
            return self._classad.ExprTree(text)
        except Exception as exc:
            raise Failed("usage", f"{what} is not a ClassAd expression: {text[:200]}") from exc


def read_log() -> str:
    """What descriptor 2 took since this request began, where it is a file."""
    with suppress(OSError):
        return os.pread(2, 200_000, 0).decode("utf-8", "replace")
    return ""


def answer(pool: Pool, request: Mapping[str, Any]) -> dict[str, Any]:
    """Make one call; every failure becomes an answer."""
    with suppress(OSError):
        os.ftruncate(2, 0)
    try:
        return {"ok": getattr(pool, request["call"])(**request["args"])}
    except Failed as exc:
        return {"error": {"kind": exc.kind, "reason": exc.reason, "daemon": exc.daemon}}
    except Exception as exc:  # noqa: BLE001  (whatever the bindings raise, the parent decides)
        kind, reason = explain(read_log()) or ("pool", f"{exc}" or type(exc).__name__)
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
    pool = Pool()
    with channel, channel.makefile("rb") as requests:
        channel.sendall(b'{"id": 0, "ok": "ready"}\n')
        for line in requests:
            request = json.loads(line)
            reply = {"id": request["id"], **answer(pool, request)}
            channel.sendall(json.dumps(reply).encode() + b"\n")
    sys.exit(0)


if __name__ == "__main__":
    main()
