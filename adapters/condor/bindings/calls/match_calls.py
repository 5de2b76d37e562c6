"""Calls for ``hydrator why``, made in the child process: query jobs, and match a job with slots."""
# ruff: noqa: ANN401  (the bindings have no types)

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adapters.condor.bindings.clauses import find_names
from adapters.condor.bindings.library import Bindings, CallError
from adapters.condor.bindings.matchmaking import RESOURCES, JobMatch
from adapters.condor.bindings.values import SITE_WIDE_ATTRIBUTES, Ad, expression_text

MATCH_SLOT_ATTRIBUTES = (
    "Name",
    "State",
    "PartitionableSlot",
    "DynamicSlot",
    "Requirements",
    "DataLocalitySite",
    "DataLocalityAsOf",
    "DataLocalityGeneration",
    "DataLocalityVersion",
    "DataLocalityVia",
)
MAX_JOB_GROUPS = 20
JOB_KIND_ATTRIBUTES = (
    "JobStatus",
    "AutoClusterId",
    "RequiredDatasets",
    "DataLocalityMaxAge",
    "ChirpDataLocalityMissed",
)
"""Attributes that distinguish kinds of jobs of a cluster, with their requirements."""
REJECTION_ATTRIBUTES = ("LastRejMatchTime", "LastRejMatchReason")
MAX_REFERENCE_DEPTH = 6
"""Depth of references between attributes of slots; a deeper one counts as undefined."""
ENDED_JOB_ATTRIBUTES = (
    "ClusterId",
    "ProcId",
    "JobStatus",
    "EnteredCurrentStatus",
    "RemoveReason",
    "LastRemoteHost",
    "MATCH_EXP_DataLocalityStart",
)
JobKind = tuple[str | None, ...]
SlotQuery = Callable[[Sequence[str], str], list[Any]]
"""A query for slots, by attributes and constraint."""


class MatchCalls(Bindings):
    """Queries that explain why a job does not start."""

    # the job

    def jobs(self, schedd: str, cluster: int, proc: int | None) -> list[Ad]:
        """Return the jobs of a cluster, or one job, in groups of alike jobs: the ids and the first job's ad.

        Groups beyond MAX_JOB_GROUPS are ``brief``: their ads have only the attributes that distinguish kinds.
        """
        queue = self.schedd(schedd)
        attributes = (*JOB_KIND_ATTRIBUTES, "Requirements", "DataLocalityHere")
        procs_by_kind: dict[JobKind, list[int]] = {}
        rejections: dict[JobKind, tuple[int, str]] = {}
        for ad in queue.query(_job_constraint(cluster, proc), ["ProcId", *REJECTION_ATTRIBUTES, *attributes]):
            kind = tuple(expression_text(ad, name) if name in ad else None for name in attributes)
            procs_by_kind.setdefault(kind, []).append(ad["ProcId"])
            at, reason = (self.scalar(ad, name) for name in REJECTION_ATTRIBUTES)
            if isinstance(at, int) and isinstance(reason, str):
                rejections[kind] = max(rejections.get(kind, (0, "")), (at, reason))
        groups = sorted((sorted(procs), kind) for kind, procs in procs_by_kind.items())
        rows: list[Ad] = []
        for procs, kind in groups[:MAX_JOB_GROUPS]:
            rows += self._full_rows(queue, cluster, procs, rejections.get(kind))
        return rows + [_brief_row(cluster, procs, kind) for procs, kind in groups[MAX_JOB_GROUPS:]]

    def _full_rows(
        self, queue: Any, cluster: int, procs: list[int], rejection: tuple[int, str] | None
    ) -> list[Ad]:
        """Return the complete ad of the first of the alike jobs *procs*, with the last rejection of any job.

        The negotiator considers only one of many alike jobs, so a rejection of one job is true for all.
        """
        at, reason = rejection or (0, "")
        values = (str(at), self.classad.quote(reason))
        texts = dict(zip(REJECTION_ATTRIBUTES, values, strict=True)) if rejection else {}
        return [
            {"procs": procs, "ad": {name: expression_text(ad, name) for name in ad} | texts}
            for ad in queue.query(_job_constraint(cluster, procs[0]))
        ]

    def find_ended_job(self, schedd: str, cluster: int, proc: int | None) -> list[Ad]:
        """Return the ad of a job, or of a cluster's last job, from the history; empty without such a job."""
        queue = self.schedd(schedd)
        ads = queue.history(_job_constraint(cluster, proc), list(ENDED_JOB_ATTRIBUTES), 1)
        return [self.scalars(ad, ENDED_JOB_ATTRIBUTES) for ad in ads]

    def count_uploads(self, schedd: str, user: str, least_bytes: int) -> int:
        """Count the jobs of *user* that transfer, or wait to transfer, *least_bytes* of input or more."""
        constraint = (
            f"User =?= {self.classad.quote(user)}"
            " && (TransferringInput =?= true || TransferQueued =?= true)"
            f" && (TransferInputSizeMB ?: 0) >= {least_bytes // 2**20}"
        )
        return len(self.schedd(schedd).query(constraint, ["ProcId"]))

    # the match

    def evaluate_match(
        self,
        job: Mapping[str, str],
        facts: Sequence[str],
        site_attributes: Sequence[str],
        atomic_attributes: Sequence[str],
        flock: Sequence[str],
    ) -> Ad:
        """See :meth:`adapters.condor.bindings.client.MatchClient.evaluate_match`."""
        match = JobMatch(self.classad, self._build_job_ad(job), facts, site_attributes, atomic_attributes)
        attributes = match.collect_slot_attributes()

        def fetch(addresses: Sequence[str]) -> list[tuple[Any, Any]]:
            query = self._build_slot_query(addresses)
            return self._fetch_match_slots(query, attributes, site_attributes)

        own_collectors = self.collector_addresses()
        own_slots = fetch(own_collectors or [""])
        own_names = {self.scalar(ad, "Name") for ad, _ in own_slots}
        answer = match.evaluate_slots(own_slots)
        failures = {}
        for address in [one for one in flock if one not in own_collectors]:
            try:
                pairs = fetch([address])
            except CallError as failure:
                failures[address] = failure.reason
                continue
            slots = [pair for pair in pairs if self.scalar(pair[0], "Name") not in own_names]
            answer["groups"] += [
                {**group, "pool": address} for group in match.evaluate_slots(slots)["groups"]
            ]
        return {**answer, "unreachable_pools": failures}

    def _build_slot_query(self, addresses: Sequence[str]) -> SlotQuery:
        """Return a function that queries the slots of all collectors at *addresses*, each slot once.

        The function skips a collector that did not answer an earlier query. At least one collector must
        answer.
        """
        responsive = list(addresses)

        def query(attributes: Sequence[str], constraint: str) -> list[Any]:
            slots: dict[Any, Any] = {}
            failures: dict[str, CallError] = {}
            for address in responsive:
                try:
                    ads = self.query_ads("Slot", attributes, constraint, address)
                except CallError as failure:
                    failures[address] = failure
                    continue
                for ad in ads:
                    slots.setdefault(self.scalar(ad, "Name"), ad)
            if len(failures) == len(responsive):
                raise failures[responsive[-1]]
            responsive[:] = [address for address in responsive if address not in failures]
            return list(slots.values())

        return query

    def _fetch_match_slots(
        self, query: SlotQuery, attributes: set[str], site_attributes: Sequence[str]
    ) -> list[tuple[Any, Any]]:
        """Fetch slots with all attributes that the match needs, and with the long attributes of their site.

        The expressions of a fetched slot may refer to further attributes, so this takes a few rounds of
        queries.
        """
        totals = [f"TotalSlot{name}" for name in RESOURCES]
        names = {
            name.lower()
            for name in (*MATCH_SLOT_ATTRIBUTES, *RESOURCES, *totals, *site_attributes, *attributes)
        }
        long_names = {name.lower() for name in SITE_WIDE_ATTRIBUTES}
        for _ in range(MAX_REFERENCE_DEPTH):
            slots = query(sorted(names - long_names), "true")
            if not slots:
                return []
            references = {
                name.lower()
                for ad in slots
                for value in ad.values()
                if isinstance(value, self.classad.ExprTree)
                for name in find_names(str(value))
            }
            if references <= names:
                break
            names |= references
        if not names & long_names:
            return [(ad, None) for ad in slots]
        return self._pair_with_site_attributes(query, slots, sorted(names & long_names))

    def _pair_with_site_attributes(
        self, query: SlotQuery, slots: Sequence[Any], long_attributes: Sequence[str]
    ) -> list[tuple[Any, Any]]:
        """Pair slots with the long attributes of their site, fetched once for each version of a site's ad."""
        scalar, quote = self.scalar, self.classad.quote

        def content(ad: Any) -> tuple[Any, ...]:
            generation = scalar(ad, "DataLocalityGeneration")
            name = scalar(ad, "Name") if generation is None else None
            return scalar(ad, "DataLocalitySite"), generation, scalar(ad, "DataLocalityVersion"), name

        examples = {content(ad): ad["Name"] for ad in slots if "DataLocalityGeneration" in ad}
        by_name = " || ".join(f"Name == {quote(name)}" for name in examples.values())
        any_long = " || ".join(f"{name} isnt undefined" for name in long_attributes)
        by_hand = f"DataLocalityGeneration is undefined && ({any_long})"
        versions = ["DataLocalityGeneration", "DataLocalityVersion"]
        attributes = ["Name", "DataLocalitySite", *versions, *long_attributes]
        carriers = {}
        for ad in query(attributes, f"({by_hand})" + (f" || {by_name}" if by_name else "")):
            carriers[content(ad)] = ad
        return [(ad, carriers.get(content(ad))) for ad in slots]

    def _build_job_ad(self, texts: Mapping[str, str]) -> Any:
        ad = self.classad.ClassAd()
        for name, text in texts.items():
            ad[name] = self.parse_expression(text, f"{name} of the job")
        return ad


def _job_constraint(cluster: int, proc: int | None) -> str:
    return f"ClusterId == {cluster}" + ("" if proc is None else f" && ProcId == {proc}")


def _brief_row(cluster: int, procs: list[int], kind: JobKind) -> Ad:
    texts = {name: text for name, text in zip(JOB_KIND_ATTRIBUTES, kind, strict=False) if text is not None}
    return {"procs": procs, "ad": {"ClusterId": str(cluster), **texts}, "brief": True}
