"""Why a dataset does not count at a site: what the slots say of it, else what the daemon knows. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from .judged import Job, SlotGroup, Told
from .model import DatasetState, Did, Fact, Site, Snapshot, unix
from .private import IN_PLAIN
from .told import because
from .words import listed, share, shortened, some, span


class Lack(StrEnum):
    """Why a slot does not count a dataset as there."""

    STATE = "state"  # it says another state than AVAILABLE
    STALE = "stale"  # it says AVAILABLE, but by a fact that is too old
    NO_AGE = "no age"  # it says AVAILABLE and not since when
    NOT_YET = "not yet"  # the daemon knows it there; the slot does not say so yet
    NOT_ASKED = "not asked"  # nobody asked for it before: it is published once a job does
    LEFT_OUT = "left out"  # the size budget had no room
    CLASH = "clash"  # another dataset has the same name but for letter case
    REFUSED = "refused"  # the name is no DID
    PRIVATE = "private"  # it is named in plain, and advertised under an opaque name only
    UNSEEN = "unseen"  # no catalogue could say
    UNHYDRATED = "unhydrated"  # the slot has none of our attributes
    ELSEWHERE = "elsewhere"  # it is at other sites
    NOWHERE = "nowhere"  # no catalogue has it


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What the daemon holds true, and what it could not do.

    ``demanded`` datasets are published; ``asked`` ones were asked about besides, for this answer alone.
    """

    now: datetime
    snapshot: Snapshot
    demanded: frozenset[Did] = frozenset()
    asked: frozenset[Did] = frozenset()
    left_out: Mapping[Site, AbstractSet[Did]] = field(default_factory=dict)

    @property
    def clashing(self) -> dict[str, tuple[Did, ...]]:
        return {did.lower(): clash for clash in self.snapshot.clashes for did in clash}


@dataclass(frozen=True, slots=True)
class Missing:
    """One dataset that does not count at a site: what the slots, else the daemon, say; in one sentence."""

    did: str
    lack: Lack
    text: str
    state: str | None = None
    fraction: float | None = None
    as_of: int | None = None
    rule: str | None = None
    because: str | None = None
    """How the catalogue came to that state: its reason, the rule and whose it is, when it will be whole."""


def clause_holds(
    dids: Iterable[Did],
    states: Mapping[str, str],
    ages: Mapping[str, int],
    as_of: int | None,
    *,
    now: int,
    max_age: int | None,
    any_after: int | None = None,
) -> bool:
    """What ``DataLocalityHere`` evaluates to beside a slot that says *states*, *ages* and *as_of* (Unix s).

    The keys of a nested ad ignore letter case. *any_after* None is ``require``; where *max_age* (s) or a
    fact's age is None, the comparison is undefined, so nothing counts.
    """
    if any_after is not None and now >= any_after:
        return True
    states = {did.lower(): state for did, state in states.items()}
    ages = {did.lower(): age for did, age in ages.items()}

    def counts(did: Did) -> bool:
        age = ages.get(did.lower(), as_of)
        young = age is not None and max_age is not None and now - age < max_age
        return young and states.get(did.lower()) == "AVAILABLE"

    return all(counts(did) for did in dids)


def missing_at(
    job: Job, site: Site, groups: Sequence[SlotGroup], beliefs: Beliefs | None, now: datetime
) -> tuple[Missing, ...]:
    """Every dataset that does not count at some of *groups*, with the reason at the first of them."""
    found = [
        Missing(text, Lack.REFUSED, f"{shortened(text)} is no DID: {reason}")
        for text, reason in job.refused.items()
    ]
    for did in job.datasets:
        short = [group for group in groups if not group.told.get(did, Told(False)).counts]
        if short:
            found.append(_lacking(job, did, site, short[0], beliefs, now))
    return tuple(found)


def _lacking(
    job: Job, did: Did, site: Site, group: SlotGroup, beliefs: Beliefs | None, now: datetime
) -> Missing:
    if did in job.private:
        return Missing(did, Lack.PRIVATE, f"{did} {IN_PLAIN}")
    told = group.told.get(did, Told(False))
    values: dict[str, Any] = {"state": told.state, "fraction": told.fraction, "as_of": told.as_of}
    if group.generation is None and told.state is None:
        text = "the slots carry none of our attributes: no hook runs there (docs/install-on-a-glidein.md)"
        return Missing(did, Lack.UNHYDRATED, f"{did}: {text}")
    if told.state == DatasetState.AVAILABLE:
        return _untrusted(job, did, told, values, now)
    fact = _fact(did, site, beliefs)
    how = _because(fact, now)
    if told.state is not None:
        text = f"{did} is {_state_in_words(told.state, told.fraction)}{_read_ago(told.as_of, now)}"
        if fact and fact.state != told.state:  # what is known of another state says nothing of this one
            how = {}
        return Missing(did, Lack.STATE, text + _told(how), **values, **how)
    return _unmentioned(did, site, beliefs, how)


def _fact(did: Did, site: Site, beliefs: Beliefs | None) -> Fact | None:
    """What the daemon holds true of *did* at *site*."""
    facts = beliefs.snapshot.sites.get(site) if beliefs else None
    return facts.facts.get(did) if facts else None


def _because(fact: Fact | None, now: datetime) -> dict[str, Any]:
    """The fields of a Missing that say how the catalogue came to *fact*; none where it did not tell."""
    why = because(fact.told, now) if fact else ""
    return {"rule": fact.told.rule or None, "because": why} if fact and why else {}


def _told(why: Mapping[str, Any]) -> str:
    return f"; {why['because']}" if why else ""


def _read_ago(as_of: int | None, now: datetime) -> str:
    return "" if as_of is None else f", read {span(unix(now) - as_of)} ago"


def _untrusted(job: Job, did: Did, told: Told, values: dict[str, Any], now: datetime) -> Missing:
    if told.as_of is None:
        return Missing(
            did, Lack.NO_AGE, f"{did} is AVAILABLE there, but the slots do not say since when", **values
        )
    limit = "" if job.max_age is None else f"; the job takes none older than {span(job.max_age)}"
    old = span(unix(now) - told.as_of)
    text = (
        f"{did} was AVAILABLE {old} ago{limit}: is the hook's source away? (hydrator status, hydrator check)"
    )
    return Missing(did, Lack.STALE, text, **values)


def _state_in_words(state: str, fraction: float | None) -> str:
    meaning = {
        DatasetState.STAGING: "on its way",
        DatasetState.PARTIAL: "some files only, and nothing moves",
        DatasetState.NEARLINE: "on tape only",
        DatasetState.STUCK: "its rule is stuck: ask its owner",
        DatasetState.UNKNOWN: "nobody could be asked for too long",
    }
    words = next((text for known, text in meaning.items() if known == state), "")
    return f"{state}{share(fraction)}" + (f" ({words})" if words else "")


def _unmentioned(did: Did, site: Site, beliefs: Beliefs | None, why: dict[str, Any]) -> Missing:
    """Why the slots of *site* do not speak of *did*; its state is then the daemon's."""
    if beliefs is None:
        return Missing(did, Lack.ELSEWHERE, f"{did} is not there, say the slots")
    if clash := beliefs.clashing.get(did.lower()):
        other = listed([one for one in clash if one != did])
        return Missing(did, Lack.CLASH, f"{did} is not advertised: only letter case tells it from {other}")
    if did in beliefs.left_out.get(site, ()):
        return Missing(did, Lack.LEFT_OUT, f"{did} found no room in the site's ad (budget.line_bytes)")
    if fact := _fact(did, site, beliefs):
        values: dict[str, Any] = {
            **why,
            "state": str(fact.state),
            "fraction": fact.fraction,
            "as_of": unix(fact.as_of),
        }
        state = _state_in_words(fact.state, fact.fraction) + _told(why)
        if did in beliefs.demanded:
            text = f"{did} is {state} there, says the daemon; the slots do not say so yet"
            return Missing(did, Lack.NOT_YET, text, **values)
        text = f"{did} is {state} there, says the catalogue; it is published once a job asks for it"
        return Missing(did, Lack.NOT_ASKED, text, **values)
    if reason := beliefs.snapshot.unseen.get(did):
        return Missing(did, Lack.UNSEEN, f"{did}: no catalogue could say ({shortened(reason)})")
    elsewhere = [
        f"{other} ({there.facts[did].state}{share(there.facts[did].fraction)})"
        for other, there in beliefs.snapshot.sites.items()
        if did in there.facts
    ]
    if elsewhere:
        return Missing(did, Lack.ELSEWHERE, f"{did} is not there; it is at {some(elsewhere)}")
    if did not in beliefs.demanded | beliefs.asked:
        text = "the daemon has not heard of it yet: it asks the schedds at its next round (hydrator status)"
        return Missing(did, Lack.NOT_ASKED, f"{did}: {text}")
    return Missing(
        did, Lack.NOWHERE, f"{did} is nowhere: no catalogue has it; is the name right, to the letter?"
    )


def data_text(missing: Sequence[Missing]) -> str:
    if missing and all(one.lack is Lack.UNHYDRATED for one in missing):
        return missing[0].text.partition(": ")[2]
    return some([one.text for one in missing], "; ")
