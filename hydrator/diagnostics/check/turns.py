"""Examination of the turns to read: daemon, negotiator and startds must have the same number of readers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydrator.diagnostics.check.findings import CheckPoolClient, Finding, name_list, ok, warning
from hydrator.diagnostics.check.slots import AUTO_ATTRIBUTE
from hydrator.domain.text import format_count
from hydrator.submit.expressions import READ_LIMIT_ATTRIBUTE, readers_of_limit

DEFAULT_LIMIT = "CONCURRENCY_LIMIT_DEFAULT_DataLocality"
"""The negotiator's parameter: 100 for each reader of a source."""
DAEMON_SETTING = "estimates.max_readers_per_source"


def check_turns(pool: CheckPoolClient, readers: int, *, negotiator_answers: bool) -> Iterator[Finding]:
    """Compare *readers*, which the daemon's settings give, with the negotiator and with the slots.

    A pool where neither has a limit has no turns, as with ``--rank-only``; then there is nothing to compare.
    A negotiator that does not answer is reported elsewhere; then compare with the slots alone.
    """
    text = pool.config_of("negotiator", [DEFAULT_LIMIT]).get(DEFAULT_LIMIT) if negotiator_answers else None
    slots = pool.slots(["Name", AUTO_ATTRIBUTE, READ_LIMIT_ATTRIBUTE], "DynamicSlot =!= true")
    is_limited = any(slot.get(READ_LIMIT_ATTRIBUTE) is not None for slot in slots)
    if not text and not is_limited:
        return
    findings = [*_check_slot_limits(slots, readers)]
    if negotiator_answers:
        findings = [*_check_negotiator_limit(text, readers), *findings]
    parts = "daemon, negotiator and slots" if negotiator_answers else "daemon and slots"
    same = f"{parts} have the same limit: {readers} readers of a source"
    yield from findings or [ok("turns", same)]


def _check_negotiator_limit(text: str | None, readers: int) -> Iterator[Finding]:
    if not text:
        yield warning(
            "negotiator",
            f"has no {DEFAULT_LIMIT}: any number of jobs may begin to read from one source in one turn",
            "install the output of hydrator submit pool-config --role negotiator",
        )
    elif (own := _readers_of_parameter(text)) != readers:
        yield warning("negotiator", *_describe_negotiator_limit(text, own, readers))


def _describe_negotiator_limit(text: str, own: float | None, readers: int) -> tuple[str, str]:
    """Return a message and an advice about a limit that is not the daemon's *readers*."""
    if own is None:
        message = f"{DEFAULT_LIMIT} = {text} is not a number of readers, times 100"
        return message, "install the output of hydrator submit pool-config --role negotiator"
    effect = "more" if own > readers else "fewer"
    message = (
        f"{DEFAULT_LIMIT} is for {own:g} readers of a source, and the daemon has {readers}"
        f" ({DAEMON_SETTING}): {effect} jobs begin to read in a turn than the daemon expects"
    )
    return message, _advice("negotiator", readers)


def _check_slot_limits(slots: Sequence[Mapping[str, Any]], readers: int) -> Iterator[Finding]:
    names_by_readers: dict[int | None, list[str]] = {}
    for slot in slots:
        if slot.get(AUTO_ATTRIBUTE) is None and slot.get(READ_LIMIT_ATTRIBUTE) is None:
            continue
        own = readers_of_limit(str(slot.get(READ_LIMIT_ATTRIBUTE)))
        names_by_readers.setdefault(own, []).append(str(slot["Name"]))
    for own, names in sorted(names_by_readers.items(), key=lambda each: each[0] or 0):
        count = format_count(len(names), "slot")
        if own is None:
            yield warning(
                "slots",
                f"{count} without {READ_LIMIT_ATTRIBUTE}: jobs with mode auto begin to read there without"
                f" waiting for a turn: {name_list(names)}",
                "install the output of hydrator submit pool-config --role startd",
            )
        elif own != readers:
            effect = "longer, so fewer" if own > readers else "shorter, so more"
            yield warning(
                "slots",
                f"{count} with turns for {own} readers of a source, and the daemon has {readers}"
                f" ({DAEMON_SETTING}): turns are {effect} jobs begin to read: {name_list(names)}",
                _advice("startd", readers),
            )


def _readers_of_parameter(text: str) -> float | None:
    """Return the readers of a value such as ``10 * 100`` or ``1000``; None for any other text."""
    factors = re.fullmatch(r"(\d+)(?:\s*\*\s*(\d+))?", text.strip())
    return int(factors[1]) * int(factors[2] or 1) / 100 if factors else None


def _advice(role: str, readers: int) -> str:
    return (
        f"set DATALOCALITY_READERS = {readers} in the text of hydrator submit pool-config --role {role},"
        f" or change {DAEMON_SETTING}: docs/explanation/estimates.md"
    )
