"""Calls for ``hydrator why`` and for the sites that match jobs: query jobs, and match a job with slots.

The child process makes these calls. A match evaluates each clause of the job and of the slot. A clause is an
operand of ``&&``. No library returns the syntax tree of an expression, so this module parses the text.
The text is HTCondor's own output: balanced brackets, ``"…"`` for strings, ``'…'`` for names.
"""
# ruff: noqa: ANN401  (the bindings have no types)

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

from hydrator.domain.ads import contract

from .library import (
    NOT_DYNAMIC_SLOT,
    RESOURCES,
    SITE_WIDE_ATTRIBUTES,
    Ad,
    Bindings,
    CallError,
    expression_text,
    is_number,
    is_plain,
    read_strings,
)
from .schedd_calls import START_ATTRIBUTES, read_start

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|=\?=|=!=|\?:|&&|\|\||[A-Za-z_][A-Za-z0-9_]*|.', re.DOTALL
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_REFERENCE = re.compile(r"(?:MY\s*\.\s*)?([A-Za-z_][A-Za-z0-9_]*)\Z", re.IGNORECASE)
_LITERAL = re.compile(r'true|false|undefined|error|[-+0-9.eE]+|"(?:\\.|[^"\\])*"', re.IGNORECASE)
_WEAKER_OPERATORS = {"||", "?", "?:"}
_MAX_DEPTH = 20


def split_into_clauses(
    attribute: str, text_of: Callable[[str], str | None], atomic_attributes: Sequence[str]
) -> list[str]:
    """Return the clauses of *attribute* that ``&&`` joins, in their order.

    Args:
        attribute: the name of an attribute of the ad, such as ``Requirements``.
        text_of: a function that returns the expression of an attribute; None if the ad does not have the
            attribute.
        atomic_attributes: attributes whose names stay in a clause; other names are replaced by their
            expressions.
    """
    atomic_names = frozenset(name.lower() for name in atomic_attributes)
    text = text_of(attribute)
    if text is None:
        return ["undefined"]
    return list(_expand_clauses(text, text_of, atomic_names, {attribute.lower()}))


def find_names(text: str) -> set[str]:
    """Return all words in *text* that may be attribute names; the result also has functions and keywords."""
    names = set()
    for piece in _TOKEN.findall(text):
        if _NAME.match(piece):
            names.add(piece)
        elif piece.startswith("'") and _NAME.match(piece[1:-1]):
            names.add(piece[1:-1])
    return names


def split_conjunction(text: str) -> list[str]:
    """Return the operands of ``&&`` outside brackets; if a weaker operator is there too, *text* itself."""
    depth = 0
    parts = [""]
    for piece in _TOKEN.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        if depth == 0 and piece in _WEAKER_OPERATORS:
            return [text.strip()]
        if depth == 0 and piece == "&&":
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts]


def strip_parentheses(text: str) -> str:
    """Remove the parentheses around all of *text*."""
    text = text.strip()
    while text.startswith("(") and _closing_index(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _expand_clauses(
    text: str, text_of: Callable[[str], str | None], atomic_names: frozenset[str], expanded_names: set[str]
) -> Iterator[str]:
    parts = split_conjunction(strip_parentheses(text))
    if len(parts) > 1:
        for part in parts:
            yield from _expand_clauses(part, text_of, atomic_names, expanded_names)
        return
    clause = strip_parentheses(text)
    reference = _REFERENCE.match(clause)
    name = reference[1].lower() if reference else ""
    if not reference or name in atomic_names or name in expanded_names or len(expanded_names) > _MAX_DEPTH:
        yield clause
        return
    expression = text_of(name)
    if expression is None or _LITERAL.fullmatch(expression):
        yield clause
        return
    yield from _expand_clauses(expression, text_of, atomic_names, expanded_names | {name})


def _closing_index(text: str) -> int:
    """Return the index of the bracket that closes the first bracket of *text*; -1 if there is none."""
    depth = place = 0
    for piece in _TOKEN.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        if depth == 0:
            return place
        place += len(piece)
    return -1


@contextmanager
def _add_site_attributes(slot: Any, carrier: Any) -> Iterator[Any]:
    """Return *slot* with the attributes of *carrier*, the ad with its site's long ones, if there is one."""
    if carrier is None:
        yield slot
        return
    added = [name for name in slot if name not in carrier]
    carrier.update(slot)  # the long attributes are too large to copy for each slot
    yield carrier
    for name in added:
        del carrier[name]


@contextmanager
def _assume_empty(slot: Any) -> Iterator[None]:
    """Set the resources of a partitionable slot to the values of an empty slot."""
    before = {name: slot.lookup(name) for name in RESOURCES if name in slot}
    for name in before:
        if f"TotalSlot{name}" in slot:
            slot[name] = slot.lookup(f"TotalSlot{name}")
    yield
    for name, value in before.items():
        slot[name] = value


class JobMatch:
    """Evaluation of one job against many slots."""

    def __init__(
        self,
        classad: Any,
        job: Any,
        facts: Sequence[str],
        site_attributes: Sequence[str],
        atomic_attributes: Sequence[str],
    ) -> None:
        self._classad = classad
        self._job = job
        self._facts = facts
        self._site_attributes = site_attributes
        self._clauses = split_into_clauses("Requirements", self._text_reader(job), atomic_attributes)
        self._parse = cache(classad.ExprTree)
        self._depends_on_resources = cache(self._mentions_resources)

    def collect_slot_attributes(self) -> set[str]:
        """Return the attribute names that the job's expressions use, directly or through other attributes."""
        return self._collect_names({"Requirements", *self._clauses, *self._facts})

    def _collect_names(self, texts: Iterable[str]) -> set[str]:
        """Return the names in *texts*, the names in the job's attributes with these names, and so on."""
        names: set[str] = set()
        new = find_names(" ".join(texts))
        while new:
            names |= new
            text_in = self._text_reader(self._job)
            mentioned = (find_names(text) for name in new if (text := text_in(name)) is not None)
            new = set().union(*mentioned) - names
        return names

    def evaluate_slots(self, slots: Iterable[tuple[Any, Any]]) -> Ad:
        """Evaluate slots, each with the long attributes of its site; return groups of alike slots."""
        groups: dict[str, Ad] = {}
        for ad, carrier in slots:
            with _add_site_attributes(ad, carrier) as slot:
                self._add_to_group(groups, slot)
        requests = {name: self._evaluate_scalar(f"Request{name}", self._job) for name in RESOURCES}
        return {"clauses": self._clauses, "requests": requests, "groups": list(groups.values())}

    def _add_to_group(self, groups: dict[str, Ad], slot: Any) -> None:
        one = self._evaluate_slot(slot)
        key = json.dumps(one, sort_keys=True)
        group = groups.get(key)
        if group is None:
            facts = [self._evaluate_scalar(fact, self._job, slot) for fact in self._facts]
            group = groups[key] = {**one, "facts": facts, "slots": 0, "largest_resources": {}}
        group["slots"] += 1
        for name in RESOURCES:
            for attribute in (name, f"TotalSlot{name}"):
                value = self._evaluate_scalar(attribute, slot)
                if is_number(value):
                    group["largest_resources"][attribute] = max(
                        value, group["largest_resources"].get(attribute, value)
                    )

    def _evaluate_slot(self, slot: Any) -> Ad:
        """Return the values that define a group of alike slots: site, kind, and the value of every clause."""
        theirs = split_into_clauses("Requirements", self._text_reader(slot), ())
        site = contract.first_site(self._evaluate_scalar(name, slot) for name in self._site_attributes)
        one: Ad = {
            "site": site,
            "advertised_site": self._evaluate_scalar(contract.SITE, slot),
            "generation": self._evaluate_scalar(contract.GENERATION, slot),
            "state": self._slot_state(slot),
            "broken_reason": self._evaluate_scalar("SlotBrokenReason", slot),
            "hook_error": self._evaluate_scalar(contract.ERROR, slot),
            "partitionable": self._evaluate_scalar("PartitionableSlot", slot) is True,
            "theirs": theirs,
            "job_values": [self._truth_value(clause, self._job, slot) for clause in self._clauses],
            "slot_values": [self._truth_value(clause, slot, self._job) for clause in theirs],
        }
        # if one clause is not true, Requirements is not true: skip the costly evaluation
        all_true = {*one["job_values"], *one["slot_values"]} == {"true"}
        one["matches"] = all_true and bool(self._job.symmetricMatch(slot))
        if one["partitionable"]:
            with _assume_empty(slot):
                one["job_values_empty"] = self._reevaluate(self._clauses, one["job_values"], self._job, slot)
                one["slot_values_empty"] = self._reevaluate(theirs, one["slot_values"], slot, self._job)
        return one

    def _slot_state(self, slot: Any) -> Any:
        """Return the state of *slot*; one that drains or is offline takes no job, whatever its state is."""
        for attribute, state in (("Draining", "Drained"), ("Offline", "Offline")):
            if self._evaluate_scalar(attribute, slot) is True:
                return state
        return self._evaluate_scalar("State", slot)

    def _reevaluate(self, texts: Sequence[str], values: Sequence[str], my: Any, target: Any) -> list[str]:
        """Evaluate clauses again if they depend on the slot's resources; return the values of *texts*."""
        return [
            self._truth_value(text, my, target) if self._depends_on_resources(text) else value
            for text, value in zip(texts, values, strict=True)
        ]

    def _mentions_resources(self, clause: str) -> bool:
        resources = {name.lower() for name in RESOURCES}
        return any(name.lower() in resources for name in self._collect_names({clause}))

    def _text_reader(self, ad: Any) -> Callable[[str], str | None]:
        return lambda name: expression_text(ad, name) if name in ad else None

    def _truth_value(self, text: str, my: Any, target: Any) -> str:
        """Evaluate a clause: return ``true`` (it allows the match), ``false``, ``undefined`` or ``error``."""
        try:
            value = self._parse(text).eval(my, target)
        except Exception:  # noqa: BLE001  (the bindings raise several kinds of errors)
            return "error"
        if value is self._classad.Value.Undefined:
            return "undefined"
        if is_plain(value) and not isinstance(value, str):
            return "true" if value else "false"
        return "error"

    def _evaluate_scalar(self, text: str, my: Any, target: Any = None) -> Any:
        """Evaluate *text* to a scalar; None for any other value."""
        try:
            value = self._parse(text).eval(my, target)
        except Exception:  # noqa: BLE001
            return None
        return value if is_plain(value) else None


DATA_CLAUSE = contract.HERE
_IRRELEVANT = frozenset({"name", "myaddress", "state"})
"""Attributes in which slots may differ that match alike, unless the job refers to them."""
_AS_OF_SECONDS = 600
"""Slots whose facts differ in age by less than this count as alike."""


class SiteMatcher:
    """Evaluation of one job against many slots, by site; alike slots of a site are evaluated once.

    Args:
        job: the job's ad.
        site_attributes: slot attributes with the site; the first that a slot has gives its site.
    """

    def __init__(self, classad: Any, job: Any, site_attributes: Sequence[str]) -> None:
        self._job = job
        self._satisfied = classad.ClassAd(str(job))
        self._satisfied[DATA_CLAUSE] = True
        self._site_attributes = site_attributes
        self.slot_attributes = JobMatch(classad, job, (), site_attributes, ()).collect_slot_attributes()

    def evaluate_slots(self, pairs: Iterable[tuple[Any, Any]]) -> Ad:
        """Evaluate slots, each with the long attributes of its site; return ``sites`` and ``matches_now``."""
        verdicts: dict[str, tuple[bool, bool]] = {}
        sites: set[str] = set()
        matches_now = False
        for slot, carrier in pairs:
            site = self._find_site(slot)
            key = json.dumps([site, *self._signature(slot)])
            if key not in verdicts:
                verdicts[key] = self._evaluate(slot, carrier)
            is_match, would_match = verdicts[key]
            matches_now = matches_now or is_match
            if would_match and site is not None:
                sites.add(site)
        return {"sites": sorted(sites), "matches_now": matches_now}

    def _find_site(self, slot: Any) -> str | None:
        values = (slot.eval(name) for name in self._site_attributes if name in slot)
        return contract.first_site(value for value in values if isinstance(value, str))

    def _signature(self, slot: Any) -> list[tuple[str, str]]:
        """Return the attributes in which two slots of a site must agree to match the same jobs."""
        skipped = {*(_IRRELEVANT - {name.lower() for name in self.slot_attributes}), "datalocalityasof"}
        if slot.get("PartitionableSlot") is True:
            skipped |= {name.lower() for name in RESOURCES}
        texts = [(name.lower(), expression_text(slot, name)) for name in slot if name.lower() not in skipped]
        as_of = slot.get(contract.AS_OF)
        age = str(as_of // _AS_OF_SECONDS) if type(as_of) is int else ""
        return [*sorted(texts), ("datalocalityasof", age)]

    def _evaluate(self, slot: Any, carrier: Any) -> tuple[bool, bool]:
        """Return whether *slot*, if it were empty, matches the job now, and would match with the data."""
        with _add_site_attributes(slot, carrier) as ad:
            empty = _assume_empty(ad) if ad.get("PartitionableSlot") is True else nullcontext()
            with empty:
                would_match = bool(self._satisfied.symmetricMatch(ad))
                return would_match and bool(self._job.symmetricMatch(ad)), would_match


MATCH_SLOT_ATTRIBUTES = (
    "Name",
    "State",
    "PartitionableSlot",
    "Requirements",
    contract.SITE,
    contract.AS_OF,
    contract.GENERATION,
    contract.VERSION,
    contract.ERROR,
    "SlotBrokenReason",
    "Draining",
    "Offline",
)
MAX_JOB_GROUPS = 20
JOB_KIND_ATTRIBUTES = (
    "JobStatus",
    "AutoClusterId",
    contract.REQUIRED_DATASETS,
    contract.MAX_AGE,
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
)
JobKind = tuple[str | None, ...]
SlotQuery = Callable[[Sequence[str], str], list[Any]]
"""A query for slots, by attributes and constraint."""


class MatchCalls(Bindings):
    """Queries that explain why a job does not start."""

    # the job

    def jobs(self, schedd: str, cluster: int, proc: int | None = None) -> list[Ad]:
        """Return the jobs of a cluster, or one job, in groups of alike jobs: the ids and the first job's ad.

        Groups beyond MAX_JOB_GROUPS have no ad.
        """
        queue = self.schedd(schedd)
        attributes = (*JOB_KIND_ATTRIBUTES, "Requirements", contract.HERE)
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
        return rows + [{"procs": procs} for procs, _ in groups[MAX_JOB_GROUPS:]]

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

    def find_ended_job(self, schedd: str, cluster: int, proc: int | None = None) -> Ad | None:
        """Return the ad of a job, or of a cluster's last job, from the history; None without such a job."""
        names = [*ENDED_JOB_ATTRIBUTES, *START_ATTRIBUTES, contract.REQUIRED_DATASETS]
        for ad in self.schedd(schedd).history(_job_constraint(cluster, proc), names, 1):
            return {
                **self.scalars(ad, ENDED_JOB_ATTRIBUTES),
                **read_start(ad, schedd),
                "datasets": read_strings(ad, contract.REQUIRED_DATASETS),
            }
        return None

    # the match

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

    def read_job_texts(self, schedd: str, ids: Sequence[str]) -> dict[str, Ad]:
        """Return the texts of all expressions of the jobs with these *ids* that are idle, by id."""
        clusters = ",".join({job.partition(".")[0] for job in ids})
        listed = ",".join(map(self.classad.quote, ids))
        chosen = f'member(ClusterId, {{{clusters}}}) && member(strcat(ClusterId, ".", ProcId), {{{listed}}})'
        ads = self.schedd(schedd).query(f"JobStatus == 1 && {chosen}")
        texts = ({name: expression_text(ad, name) for name in ad} for ad in ads)
        return {f"{text['ClusterId']}.{text['ProcId']}": text for text in texts}

    def evaluate_sites(self, jobs: Sequence[Mapping[str, str]], site_attributes: Sequence[str]) -> list[Ad]:
        """Return, for each of *jobs* (texts of expressions), ``sites`` and ``matches_now``.

        ``sites`` are those with a slot that would match if the data were there and the slot were empty.
        ``matches_now`` says whether a slot matches as the data is now. The data clause of a job's
        Requirements refers to the job's attribute ``DataLocalityHere``. So the sites that match the rest of a
        job are those with a slot that matches the job if this attribute is true.
        """
        matches = [SiteMatcher(self.classad, self._build_job_ad(job), site_attributes) for job in jobs]
        attributes = set().union(*(match.slot_attributes for match in matches))
        query = self._build_slot_query(self.collector_addresses() or [""])
        pairs = self._fetch_match_slots(query, attributes, site_attributes)
        return [match.evaluate_slots(pairs) for match in matches]

    def _build_slot_query(self, addresses: Sequence[str]) -> SlotQuery:
        """Return a function that queries the slots of all collectors at *addresses*, each slot once.

        The function leaves out dynamic slots, which jobs already use. It skips a collector that did not
        answer an earlier query. At least one collector must answer.
        """
        responsive = list(addresses)

        def query(attributes: Sequence[str], constraint: str) -> list[Any]:
            slots: dict[Any, Any] = {}
            failures: dict[str, CallError] = {}
            for address in responsive:
                try:
                    ads = self.query_ads("Slot", attributes, f"({constraint}) && {NOT_DYNAMIC_SLOT}", address)
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
            generation = scalar(ad, contract.GENERATION)
            name = scalar(ad, "Name") if generation is None else None
            return scalar(ad, contract.SITE), generation, scalar(ad, contract.VERSION), name

        examples = {content(ad): ad["Name"] for ad in slots if contract.GENERATION in ad}
        by_name = " || ".join(f"Name == {quote(name)}" for name in examples.values())
        any_long = " || ".join(f"{name} isnt undefined" for name in long_attributes)
        by_hand = f"DataLocalityGeneration is undefined && ({any_long})"
        versions = [contract.GENERATION, contract.VERSION]
        attributes = ["Name", contract.SITE, *versions, *long_attributes]
        ads = query(attributes, f"({by_hand})" + (f" || {by_name}" if by_name else ""))
        carriers = {content(ad): ad for ad in ads}
        return [(ad, carriers.get(content(ad))) for ad in slots]

    def _build_job_ad(self, texts: Mapping[str, str]) -> Any:
        ad = self.classad.ClassAd()
        for name, text in texts.items():
            ad[name] = self.parse_expression(text, f"{name} of the job")
        return ad


def _job_constraint(cluster: int, proc: int | None) -> str:
    return f"ClusterId == {cluster}" + ("" if proc is None else f" && ProcId == {proc}")
