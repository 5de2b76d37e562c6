"""Examination of a pool: authorization, schedds and negotiator."""

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from hydrator.diagnostics.check.findings import (
    CheckPoolClient,
    Finding,
    advice,
    failure,
    ok,
    run_guarded,
    warning,
)
from hydrator.diagnostics.schedd_budget import CURES, MATCH_LIMITS, MATCH_LIMITS_EFFECT, is_on, parse_budget
from hydrator.domain.ads import contract
from hydrator.domain.daemon_probe import Authorization
from hydrator.domain.model import Unseen
from hydrator.domain.ports import PoolReader
from hydrator.submit.pool_config import allow_lines

_UNNEEDED_LEVELS = {
    "ADVERTISE_STARTD": "replace slot ads",
    "NEGOTIATOR": "read the claim ids of all slots, and so use any slot",
    "ADMINISTRATOR": "stop and drain daemons",
}
"""For each authorization level of the collector that the daemon does not need: an action that it allows."""


def check_read_access(subject: str, collector: CheckPoolClient) -> Iterator[Finding]:
    """Check that the collector answers queries; yield nothing if it does."""
    answer = collector.ping("collector", "READ")
    if not answer.is_allowed:
        effect = ": the pool cannot be examined" + (f"; {answer.reason}" if answer.identity is None else "")
        yield _refusal(subject, "queries", "READ", answer, "or give the daemon another token", effect)


def _identity_text(answer: Authorization) -> str:
    if answer.identity is None:
        return "a client without a valid token"
    return f"{answer.identity} by {answer.method or 'no method'}"


def _refusal(
    subject: str, what: str, level: str, answer: Authorization, otherwise: str, effect: str = ""
) -> Finding:
    """Return the failure of a collector that refuses *what*, with the line that allows it or another cure."""
    message = f"refuses {what} ({level}) from {_identity_text(answer)}{effect}"
    if answer.identity is None:
        todo = "give the daemon a valid token of this pool: docs/operators/credentials.md#idtokens"
    else:
        lines = _write_allowing(answer.identity, level)
        todo = f"add to the collector's configuration, unchanged: {lines}; {otherwise}"
    return failure(subject, message, answer.token_limit_advice or todo)


def _write_allowing(identity: str, level: str) -> str:
    return " and below it ".join(allow_lines("collector", level, identity))


def check_merge_access(pool: CheckPoolClient, failed_collectors: AbstractSet[str]) -> list[Finding]:
    """Check that each collector accepts slot merges, and report what else the level NEGOTIATOR allows.

    The collectors in *failed_collectors* are left out.
    """
    return [
        finding
        for collector in pool.collectors()
        if f"collector {collector}" not in failed_collectors
        for finding in run_guarded(f"collector {collector}", _check_merge_access_at, pool, collector)
    ]


def _check_merge_access_at(pool: CheckPoolClient, collector: str) -> Iterator[Finding]:
    answer = pool.ping("collector", "NEGOTIATOR", collector)
    if answer.is_allowed:
        yield advice(
            f"collector {collector}",
            f"accepts slot merges (NEGOTIATOR) from {_identity_text(answer)}; this level also lets the"
            f" client {_UNNEEDED_LEVELS['NEGOTIATOR']}: HTCondor has no narrower level",
            "protect the client's token like the negotiator's; if every slot has a hook,"
            " switch publish.slot_merge off: docs/operators/other-pools.md",
        )
    else:
        yield _refusal(
            f"collector {collector}",
            "slot merges",
            "NEGOTIATOR",
            answer,
            "never add the line to the configuration of the whole pool; create the token with"
            " -authz NEGOTIATOR; or switch publish.slot_merge off: docs/operators/other-pools.md",
            ": slots without a hook get no attributes",
        )


def check_advertise_access(
    subject: str, collector: CheckPoolClient, *, is_merging: bool
) -> Iterator[Finding]:
    answer = collector.ping("collector", "DAEMON")
    identity = _identity_text(answer)
    if answer.is_allowed:
        members = collector.config_of("collector", ["ALLOW_DAEMON"])["ALLOW_DAEMON"] or ""
        if answer.identity and set(re.split(r"[\s,]+", members.strip())) == {answer.identity}:
            yield failure(
                subject,
                f"its ALLOW_DAEMON has {answer.identity} alone: it refuses the ads of the pool's own daemons",
                f"write in place of this line: {_write_allowing(answer.identity, 'DAEMON')}",
            )
        else:
            yield ok(subject, f"accepts site ads (DAEMON) from {identity}")
        needed = ["NEGOTIATOR"] if is_merging else []
        # the level DAEMON implies some of these levels unless the pool denies them
        for level, action in _UNNEEDED_LEVELS.items():
            if level not in needed and collector.ping("collector", level).is_allowed:
                yield warning(
                    subject,
                    f"also lets {identity} {action} ({level}), which the daemon does not need",
                    "limit the token: condor_token_create -identity … -authz READ -authz DAEMON"
                    + "".join(f" -authz {one}" for one in needed),
                )
    else:
        otherwise = "never add the line to the configuration of the whole pool"
        yield _refusal(subject, "site ads", "DAEMON", answer, otherwise)


FIRST_WITH_FIX = (25, 13, 2)
"""HTCondor's first release that ends the evaluation of an attribute that refers to itself."""


def _version_before_fix(text: str) -> str:
    """Return the version in a CondorVersion if it is older than FIRST_WITH_FIX; else an empty text."""
    found = re.search(r"CondorVersion: (\d{1,4})\.(\d{1,4})\.(\d{1,4}) ", text)
    numbers = tuple(map(int, found.groups())) if found else FIRST_WITH_FIX
    return ".".join(map(str, numbers)) if numbers < FIRST_WITH_FIX else ""


def check_schedds(pool: CheckPoolClient, queues: PoolReader) -> Iterator[Finding]:
    answers = queues.read_snapshot(waits=True).answers
    for ad in pool.schedds():
        if ad["Name"] in answers and (old := _version_before_fix(str(ad.get("CondorVersion")))):
            yield advice(
                f"schedd {ad['Name']}",
                f"HTCondor {old}: an attribute that refers to itself, as +X = false ? {{}} : X, stops the"
                " schedd if anything evaluates it; pool-config evaluates none, another transform may",
                f"upgrade the schedd to {'.'.join(map(str, FIRST_WITH_FIX))} or later",
            )
        yield from _check_budget(ad)
    for schedd, answer in sorted(answers.items()):
        if isinstance(answer, Unseen):
            yield failure(
                f"schedd {schedd}",
                f"the query failed: {answer.reason}",
                "check that the schedd runs, and grants the daemon's identity READ:"
                " docs/operators/security.md has the line for SCHEDD.ALLOW_READ",
            )
            continue
        if pool.ping("schedd", "WRITE", schedd).is_allowed:
            yield warning(
                f"schedd {schedd}",
                "also lets the daemon submit jobs (WRITE), which it does not need: DAEMON in"
                " a token implies WRITE",
                "add the daemon's identity to the schedd's DENY_WRITE: docs/operators/security.md",
            )
        jobs = sum(group.job_count for group in answer.demand.job_groups)
        yield ok(f"schedd {schedd}", f"{jobs} queued jobs name datasets")
        yield from run_guarded(f"schedd {schedd}", _check_schedd_configuration, pool, schedd)
    if not answers:
        yield warning("schedds", "the collector lists no schedd", "check htcondor.collector")


def _check_budget(schedd: Mapping[str, Any]) -> Iterator[Finding]:
    """Advise if waiting jobs can use up what the schedd asks the negotiator for, whatever other jobs wait."""
    budget = parse_budget(schedd)
    if budget and budget.idle > 0 and budget.room == 0:
        yield advice(
            f"schedd {schedd['Name']}",
            f"{budget.running} jobs run, of MAX_JOBS_RUNNING = {budget.most}: none of the {budget.idle} idle"
            " jobs can start",
            "raise MAX_JOBS_RUNNING, unless the machine of the schedd can run no more shadows",
        )
    elif budget and budget.can_starve:
        yield advice(
            f"schedd {schedd['Name']}",
            f"{budget.idle} jobs are idle and {budget.running} run, of MAX_JOBS_RUNNING = {budget.most}:"
            f" if jobs of one kind wait for their data, and {budget.room} or more of them are idle, the other"
            " jobs of their owner get no slot (HTCONDOR-3855)",
            f"raise MAX_JOBS_RUNNING; or {CURES}",
        )


def _check_schedd_configuration(pool: CheckPoolClient, schedd: str) -> Iterator[Finding]:
    config = pool.config_of("schedd", ["JOB_TRANSFORM_NAMES", MATCH_LIMITS], schedd)
    if is_on(config, MATCH_LIMITS):
        yield warning(
            f"schedd {schedd}",
            MATCH_LIMITS_EFFECT,
            "install the output of hydrator pool-config --role schedd",
        )
    if "datalocality" not in (config.get("JOB_TRANSFORM_NAMES") or "").lower():
        yield warning(
            f"schedd {schedd}",
            "has no DataLocality transform: jobs that set only RequiredDatasets ignore where their data is",
            "install the output of hydrator pool-config --role schedd",
        )


def check_negotiator(pool: CheckPoolClient) -> Iterator[Finding]:
    config = pool.config_of("negotiator", ["NEGOTIATOR_PRE_JOB_RANK"])
    if contract.RANK.lower() in (config.get("NEGOTIATOR_PRE_JOB_RANK") or "").lower():
        yield ok("negotiator", "ranks locality first")
    else:
        yield warning(
            "negotiator",
            "NEGOTIATOR_PRE_JOB_RANK has no locality term: it ranks slots by size, so Rank has no effect",
            "install the output of hydrator pool-config --role negotiator",
        )
