"""Examination of a pool: authorization, schedds, negotiator and slots."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from hydrator.diagnostics.check.findings import (
    AuthorizationResult,
    CheckInputs,
    CheckPoolClient,
    Finding,
    JobEditorClient,
    Level,
    _name_list,
    _run_guarded,
)
from hydrator.domain.model import Site, Unseen
from hydrator.domain.ports import Queues
from hydrator.domain.text import format_count
from hydrator.submit.pool_config import allow_line

SLOT_ATTRIBUTES = (
    "Name", "Machine", "PartitionableSlot", "DynamicSlot", "TotalSlotCpus", "Start",
    "DataLocalityVia", "DataLocalitySite", "DataLocalityAsOf", "DataLocalityGeneration",
    "DataLocalityTrouble", "LastHeardFrom",
)  # fmt: skip


HERE_ATTRIBUTE = "DataLocalityHere"


MATCH_LIMITS = "SCHEDD_ENABLE_PER_USER_MATCH_LIMITS"


RANK_TERM = "DataLocalityRank"


_UNNEEDED_LEVELS = {
    "ADVERTISE_STARTD": "replace slot ads",
    "NEGOTIATOR": "read claims, and with them use any slot",
    "ADMINISTRATOR": "stop and drain daemons",
}
"""Permissions that the daemon does not need, by authorization level at the collector."""


def _check_read_access(subject: str, collector: CheckPoolClient) -> Iterator[Finding]:
    """Check that the collector answers queries; yield nothing if it does."""
    answer = collector.ping("collector", "READ")
    if not answer.is_allowed and answer.identity is None:
        yield Finding(
            Level.FAIL,
            subject,
            f"the pool cannot be examined: {answer.reason}",
            "create a token: docs/install-on-a-pool.md; give it to the daemon: docs/install-with-systemd.md",
        )
    elif not answer.is_allowed:
        yield Finding(
            Level.FAIL,
            subject,
            f"refuses queries (READ) from {_identity_text(answer)}: the pool cannot be examined",
            answer.token_limit_advice
            or f"{_allow_line_advice('collector', 'READ', answer)},"
            " or give the daemon a valid token: docs/security.md",
        )


def _identity_text(answer: AuthorizationResult) -> str:
    return f"{answer.identity or 'an unknown identity'} by {answer.method or 'no method'}"


def _allow_line_advice(daemon: str, level: str, answer: AuthorizationResult) -> str:
    """Return the line that allows it; a list with only this identity would exclude the pool's daemons."""
    line = allow_line(daemon, level, answer.identity or "hydrator@YOUR.DOMAIN")
    return f"add to the {daemon}'s configuration, unchanged: {line}"


def _check_merge_access(pool: CheckPoolClient, failed_collectors: AbstractSet[str]) -> list[Finding]:
    """Check that collectors outside *failed_collectors* accept slot merges, and name the side effect."""
    return [
        finding
        for collector in pool.collectors()
        if f"collector {collector}" not in failed_collectors
        for finding in _run_guarded(
            f"collector {collector}",
            lambda at=collector: _check_merge_access_at(pool, at),  # type: ignore[misc]
        )
    ]


def _check_merge_access_at(pool: CheckPoolClient, collector: str) -> Iterator[Finding]:
    answer = pool.ping("collector", "NEGOTIATOR", collector)
    who = _identity_text(answer)
    if answer.is_allowed:
        yield Finding(
            Level.ADVICE,
            f"collector {collector}",
            f"accepts slot merges (NEGOTIATOR) from {who}; the same level lets it "
            f"{_UNNEEDED_LEVELS['NEGOTIATOR']}, and HTCondor grants only both",
            "protect its token like the negotiator's; if every slot has a hook, switch publish.merge off:"
            " docs/slot-merge.md",
        )
    else:
        yield Finding(
            Level.FAIL,
            f"collector {collector}",
            f"refuses slot merges (NEGOTIATOR) from {who}: slots without a hook get no attributes",
            answer.token_limit_advice
            or f"{_allow_line_advice('collector', 'NEGOTIATOR', answer)}, never pool-wide,"
            " and -authz NEGOTIATOR to the token, or switch publish.merge off: docs/slot-merge.md",
        )


def _check_advertise_access(
    subject: str, collector: CheckPoolClient, *, is_merging: bool
) -> Iterator[Finding]:
    answer = collector.ping("collector", "DAEMON")
    who = _identity_text(answer)
    if answer.is_allowed:
        yield Finding(Level.OK, subject, f"accepts site ads (DAEMON) from {who}")
        for level, what in _UNNEEDED_LEVELS.items():  # DAEMON brings some along where nothing is said
            if not (is_merging and level == "NEGOTIATOR") and collector.ping("collector", level).is_allowed:
                yield Finding(
                    Level.WARN,
                    subject,
                    f"also lets {who} {what} ({level}), which the daemon does not need",
                    "limit the token: condor_token_create -identity … -authz READ -authz DAEMON"
                    + (" -authz NEGOTIATOR" if is_merging else ""),
                )
    else:
        yield Finding(
            Level.FAIL,
            subject,
            f"refuses site ads (DAEMON) from {who}",
            answer.token_limit_advice
            or f"{_allow_line_advice('collector', 'DAEMON', answer)}, never pool-wide",
        )


def _check_schedds(
    pool: CheckPoolClient, queues: Queues, *, is_editing_jobs: bool = False
) -> Iterator[Finding]:
    answers = queues.read_demand()
    for schedd, answer in sorted(answers.items()):
        if isinstance(answer, Unseen):
            yield Finding(
                Level.FAIL,
                f"schedd {schedd}",
                f"the query failed: {answer.reason}",
                "grant the daemon's identity READ at the schedd: docs/security.md has the"
                " line for SCHEDD.ALLOW_READ",
            )
            continue
        if not is_editing_jobs and pool.ping("schedd", "WRITE", schedd).is_allowed:
            yield Finding(
                Level.WARN,
                f"schedd {schedd}",
                "also lets the daemon submit jobs (WRITE), which it does not need: DAEMON in"
                " a token implies WRITE",
                "add the daemon's identity to DENY_WRITE there: docs/security.md",
            )
        jobs = sum(group.job_count for group in answer.job_groups)
        yield Finding(Level.OK, f"schedd {schedd}", f"{jobs} queued jobs name datasets")
        yield from _run_guarded(
            f"schedd {schedd}",
            lambda name=schedd: _check_schedd_configuration(pool, name),  # type: ignore[misc]
        )
    if not answers:
        yield Finding(Level.WARN, "schedds", "the collector lists no schedd", "check htcondor.collector")


def _check_edit_access(editor: JobEditorClient) -> Iterator[Finding]:
    """Check that every schedd accepts edits of DESIRED_Sites in queued jobs, and name the side effect."""
    for schedd in sorted(str(ad["Name"]) for ad in editor.schedds()):
        yield from _run_guarded(f"schedd {schedd}", lambda name=schedd: _check_edit_access_at(editor, name))  # type: ignore[misc]


def _check_edit_access_at(editor: JobEditorClient, schedd: str) -> Iterator[Finding]:
    answer = editor.ping("schedd", "WRITE", schedd)
    subject, who, todo = (
        f"schedd {schedd}",
        _identity_text(answer),
        "or switch publish.desired_sites off: docs/desired-sites.md",
    )
    if not answer.is_allowed:
        yield Finding(
            Level.FAIL,
            subject,
            f"refuses edits (WRITE) from {who}: DESIRED_Sites of queued jobs stays unchanged",
            answer.token_limit_advice
            or f"{_allow_line_advice('schedd', 'WRITE', answer)}, and -authz WRITE to its token, {todo}",
        )
        return
    identity = str(answer.identity)
    config = editor.config_of("schedd", ["QUEUE_SUPER_USERS", "IMMUTABLE_JOB_ATTRS"], schedd)
    if not {identity, identity.partition("@")[0]} & _split_list(config.get("QUEUE_SUPER_USERS")):
        message = f"does not list {who} in QUEUE_SUPER_USERS: DESIRED_Sites stays unchanged"
        yield Finding(Level.FAIL, subject, message, f"add {identity} to QUEUE_SUPER_USERS there, {todo}")
    elif not editor.has_user_record(schedd, identity):
        message = (
            f"has no user record of {who}, so QUEUE_SUPER_USERS has no effect: DESIRED_Sites stays unchanged"
        )
        yield Finding(Level.FAIL, subject, message, f"run condor_qusers -add {identity} there, {todo}")
    elif "desired_sites" in {word.lower() for word in _split_list(config.get("IMMUTABLE_JOB_ATTRS"))}:
        message = "forbids changes of DESIRED_Sites of queued jobs (IMMUTABLE_JOB_ATTRS)"
        yield Finding(Level.FAIL, subject, message, f"remove it from IMMUTABLE_JOB_ATTRS there, {todo}")
    else:
        yield Finding(
            Level.ADVICE,
            subject,
            f"lets {who} edit every queued job, and so run any command as any user:"
            " HTCondor has no narrower permission",
            "protect its token like that host's root password, apart from the daemon's token"
            " (publish.desired_sites.token_directory): docs/desired-sites.md",
        )


def _split_list(text: str | None) -> set[str]:
    return set((text or "").replace(",", " ").split())


def _check_schedd_configuration(pool: CheckPoolClient, schedd: str) -> Iterator[Finding]:
    config = pool.config_of("schedd", ["JOB_TRANSFORM_NAMES", MATCH_LIMITS], schedd)
    if (config.get(MATCH_LIMITS) or "").lower() == "true":
        yield Finding(
            Level.WARN,
            f"schedd {schedd}",
            f"{MATCH_LIMITS} is on: 20 kinds of waiting jobs of one user starve the jobs behind them",
            "install the output of hydrator submit pool-config --role schedd",
        )
    if "datalocality" not in (config.get("JOB_TRANSFORM_NAMES") or "").lower():
        yield Finding(
            Level.WARN,
            f"schedd {schedd}",
            "has no DataLocality transform: jobs with RequiredDatasets alone are not sent to their data",
            "install the output of hydrator submit pool-config --role schedd",
        )


def _check_negotiator(pool: CheckPoolClient) -> Iterator[Finding]:
    config = pool.config_of("negotiator", ["NEGOTIATOR_PRE_JOB_RANK"])
    if RANK_TERM in (config.get("NEGOTIATOR_PRE_JOB_RANK") or ""):
        yield Finding(Level.OK, "negotiator", "ranks locality first")
    else:
        yield Finding(
            Level.WARN,
            "negotiator",
            "NEGOTIATOR_PRE_JOB_RANK has no locality term: slot size comes first, Rank has no effect",
            "install the output of hydrator submit pool-config --role negotiator",
        )


def _check_slots(
    pool: CheckPoolClient, inputs: CheckInputs, sites: set[Site], failed_subjects: AbstractSet[str]
) -> Iterator[Finding]:
    """Examine the slots, without findings that follow from one of the *failed_subjects*."""
    failed_catalogues = failed_subjects & {catalogue.name for catalogue in inputs.catalogues}
    is_merge_failing = inputs.is_merging and any(name.startswith("collector ") for name in failed_subjects)
    slots = pool.slots([*SLOT_ATTRIBUTES, *inputs.slot_attributes], "DynamicSlot =!= true")
    if not slots:
        yield Finding(Level.WARN, "slots", "the collector lists no slot", "check htcondor.collector")
        return
    by_site = Counter(site_of(slot, inputs.slot_attributes) or "" for slot in slots)
    homeless, unhydrated, wiped = _classify_slots(slots, inputs, sites)
    unknown_sites = {site for site in by_site if site and site not in sites}
    yield Finding(
        Level.OK,
        "slots",
        f"{format_count(len(slots), 'slot')} at {format_count(len(by_site.keys() - {''}), 'site')}",
    )
    if homeless:
        yield Finding(
            Level.WARN,
            "slots",
            f"{len(homeless)} name no site: {_name_list(homeless)}",
            f"advertise one of {', '.join(inputs.slot_attributes)}, or extend sites.slot_attributes",
        )
    if unknown_sites and not failed_catalogues:
        yield Finding(
            Level.WARN,
            "slots",
            f"no catalogue covers the sites {_name_list(unknown_sites)}",
            "make the names agree: site attribute of the RSE, [catalogue.rse_sites], or --site of the hook",
        )
    if unhydrated and not is_merge_failing:
        yield Finding(
            Level.WARN,
            "slots",
            f"{len(unhydrated)} at known sites have no DataLocality attributes: {_name_list(unhydrated)}",
            "install the hook there: docs/install-on-a-glidein.md"
            + ("; or find out why they are not merged: docs/slot-merge.md" if inputs.is_merging else ""),
        )
    if wiped:
        yield Finding(
            Level.ADVICE,
            "slots",
            f"{len(wiped)} have no attributes until the next merge, since their startds just"
            f" sent an update: {_name_list(wiped)}",
            "if most checks show this, install the hook: docs/slot-merge.md states the coverage",
        )
    yield from _check_hooks(slots)
    yield from _check_start_expressions(slots, is_merging=inputs.is_merging)
    if inputs.is_merging:
        yield from _check_merge_only_slots(
            [slot for slot in slots if site_of(slot, inputs.slot_attributes) in sites]
        )


def _classify_slots(
    slots: Sequence[Mapping[str, Any]], inputs: CheckInputs, sites: AbstractSet[str]
) -> tuple[list[str], list[str], list[str]]:
    """Return the slots without a site, those without attributes, and those whose next merge is due.

    A slot whose hook reports a problem is in none of these lists.
    """
    homeless: list[str] = []
    unhydrated: list[str] = []
    wiped: list[str] = []
    for slot in slots:
        site = site_of(slot, inputs.slot_attributes)
        if slot.get("DataLocalityTrouble"):
            continue
        if site is None:
            homeless.append(str(slot["Name"]))
        elif site in sites and slot.get("DataLocalityAsOf") is None:
            (wiped if _is_merge_due(slot, inputs) else unhydrated).append(str(slot["Name"]))
    return homeless, unhydrated, wiped


def _is_merge_due(slot: Mapping[str, Any], inputs: CheckInputs) -> bool:
    """Return whether *slot* may lack the attributes because no merge followed its startd's update yet."""
    updated_at = slot.get("LastHeardFrom")
    return (
        inputs.is_merging
        and isinstance(updated_at, int)
        and inputs.now - updated_at < 2 * inputs.merge_interval_seconds
    )


def _check_hooks(slots: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Report problems that hooks publish in their slots; the startd's logs do not have them."""
    failing: dict[str, list[str]] = {}
    for slot in slots:
        if trouble := slot.get("DataLocalityTrouble"):
            failing.setdefault(str(trouble), []).append(str(slot["Name"]))
    for trouble, names in sorted(failing.items()):
        yield Finding(
            Level.WARN,
            "slots",
            f"the hook fails at {format_count(len(names), 'slot')}, {_name_list(names)}: {trouble}",
            "docs/install-on-a-glidein.md, When nothing arrives",
        )


def _check_start_expressions(slots: Sequence[Mapping[str, Any]], *, is_merging: bool) -> Iterator[Finding]:
    """Check that START has the locality clause on slots with a hook, and only there.

    Other startds have no dataset attributes. With *is_merging*, a slot without
    ``DataLocalityVia`` is one that the daemon merged or will merge.
    """
    has_clause = {str(slot["Name"]): HERE_ATTRIBUTE in str(slot.get("Start")) for slot in slots}
    via = {str(slot["Name"]): slot.get("DataLocalityVia") for slot in slots}
    unhooked = {"merge", None} if is_merging else {"merge"}
    refusing = [name for name, clause in has_clause.items() if clause and via[name] in unhooked]
    without_clause = [name for name, clause in has_clause.items() if not clause and via[name] == "hook"]
    if refusing:
        yield Finding(
            Level.WARN,
            "slots",
            f"{len(refusing)} slots have a START with {HERE_ATTRIBUTE} and no hook: their startds have no"
            f" dataset attributes and refuse every job with datasets: {_name_list(refusing)}",
            "remove the clause from START there, or install the hook: docs/slot-merge.md",
        )
    if without_clause:
        yield Finding(
            Level.WARN,
            "slots",
            f"{len(without_clause)} hydrated slots have a START without {HERE_ATTRIBUTE}: a"
            " claim may outlive "
            f"its data by CLAIM_WORKLIFE: {_name_list(without_clause)}",
            "install the output of hydrator submit pool-config --role startd",
        )


def _check_merge_only_slots(slots: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Name partitionable slots without a hook: each starts one job that needs data at a time.

    A slot without attributes counts too: its startd's last update may have wiped what was merged.
    """
    slow = [
        str(slot["Name"])
        for slot in slots
        if slot.get("DataLocalityVia") in {None, "merge"}
        and slot.get("PartitionableSlot") is True
        and slot.get("TotalSlotCpus") != 1
    ]
    if slow:
        yield Finding(
            Level.ADVICE,
            "slots",
            f"{format_count(len(slow), 'partitionable slot')} hydrated by merge only: each"
            " starts one job with"
            " datasets in each publish.merge.interval_seconds or negotiation cycle, whichever is longer:"
            f" {_name_list(slow)}",
            "if jobs are short, install the hook or use static slots: docs/slot-merge.md",
        )


def site_of(slot: Mapping[str, Any], attributes: Sequence[str]) -> str | None:
    """Return the site of a slot: the value of the first of *attributes* that it has."""
    return next((str(slot[name]) for name in attributes if slot.get(name)), None)
