"""Why a dataset does not count at a site: what the slots say of it, else what the daemon knows. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from hydrator.domain.beliefs import Beliefs
from hydrator.domain.model import DatasetState, Did, Fact, Site, unix
from hydrator.domain.provenance import because
from hydrator.domain.text import clock, data_size, listed, share, shortened, some, span
from hydrator.privacy.pseudonyms import IN_PLAIN

from .pool_facts import Job, SlotGroup, Told


class Lack(StrEnum):
    """Why a slot does not count a dataset as there."""

    STATE = "state"  # it says another state than AVAILABLE
    STALE = "stale"  # it says AVAILABLE, but by a fact that is too old
    NO_AGE = "no age"  # it says AVAILABLE and not since when
    NOT_YET = "not yet"  # the daemon knows it there; the slot does not say so yet
    NOT_ASKED = "not asked"  # nobody asked for it before: it is published once a job does
    LEFT_OUT = "left out"  # the size budget had no room
    CLASH = "clash"  # another dataset has the same name but for letter case
    CASE = "case"  # it is spelled with another letter case than the dataset that there is
    REFUSED = "refused"  # the name is no DID
    PRIVATE = "private"  # it is named in plain, and advertised under an opaque name only
    UNSEEN = "unseen"  # no catalogue could say
    UNHYDRATED = "unhydrated"  # the slot has none of our attributes
    ELSEWHERE = "elsewhere"  # it is at other sites
    NOWHERE = "nowhere"  # no catalogue has it


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
    bytes: int | None = None
    """What is still to come to the site, where the size of the dataset is known."""
    ready_at: int | None = None
    """When the catalogue expects it to be whole, Unix s."""
    near: tuple[Did, ...] = ()
    """Datasets whose names look like this one, which exists nowhere."""

    @property
    def is_there(self) -> bool:
        """Was the dataset seen whole at the site, or listed there, so that only our word is wanting?"""
        return self.lack in {Lack.STALE, Lack.NO_AGE} or self.state in {
            DatasetState.AVAILABLE,
            DatasetState.UNKNOWN,
        }


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

    Letter case counts, in the job's expression too. *any_after* None is ``require``; where *max_age* (s) or a
    fact's age is None, the comparison is undefined, so nothing counts.
    """
    if any_after is not None and now >= any_after:
        return True

    def counts(did: Did) -> bool:
        age = ages.get(did, as_of)
        young = age is not None and max_age is not None and now - age < max_age
        return young and states.get(did) == "AVAILABLE"

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
            lacking = _lacking(job, did, site, short[0], beliefs, now)
            found.append(replace(lacking, **_amount(lacking, did, site, beliefs)))
    return tuple(found)


def _amount(one: Missing, did: Did, site: Site, beliefs: Beliefs | None) -> dict[str, Any]:
    """Return how many bytes of *did* are still to come to *site*, and when the last of them is expected."""
    total = beliefs.snapshot.bytes_total.get(did) if beliefs else None
    if one.is_there or total is None:
        left = 0 if one.is_there else None
    else:
        left = round(total * (1 - (one.fraction or 0)))
    fact = _fact(did, site, beliefs)
    ready = fact.told.ready_at if fact and one.state == fact.state == DatasetState.STAGING else None
    return {"bytes": left, "ready_at": unix(ready) if ready else None}


def _lacking(
    job: Job, did: Did, site: Site, group: SlotGroup, beliefs: Beliefs | None, now: datetime
) -> Missing:
    if did in job.private:
        return Missing(did, Lack.PRIVATE, f"{did} {IN_PLAIN}")
    told = group.told.get(did, Told(False))
    values: dict[str, Any] = {"state": told.state, "fraction": told.fraction, "as_of": told.as_of}
    if group.generation is None and told.state is None:
        text = "the slots carry none of our attributes: no hook runs there (docs/install-on-a-glidein.md)"
        return Missing(did, Lack.UNHYDRATED, f"{did}: {text}", **_state_of(_fact(did, site, beliefs)))
    if not told.spelled or (beliefs and did in beliefs.snapshot.misspelt):
        return _misspelt(did, beliefs)
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


def _misspelt(did: Did, beliefs: Beliefs | None) -> Missing:
    """The sentence on a name whose letter case is another one's; it names that dataset where it is known."""
    held = beliefs.snapshot.misspelt.get(did, ()) if beliefs else ()
    known = f": the catalogue has {listed(held)}" if held else " than at this site"
    return Missing(
        did, Lack.CASE, f"{did} is written with another letter case{known}; names count to the letter"
    )


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
        text = f"{did} is not advertised: only letter case tells it from {other}"
        return Missing(did, Lack.CLASH, text, **_state_of(_fact(did, site, beliefs)))
    if did in beliefs.left_out.get(site, ()):
        text = f"{did} is left out of the site's ad by its budget (budget.line_bytes)"
        return Missing(did, Lack.LEFT_OUT, text, **_state_of(_fact(did, site, beliefs)))
    if fact := _fact(did, site, beliefs):
        values = {**why, **_state_of(fact)}
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
    near = beliefs.near.get(did, ())
    advice = f"did you mean {' or '.join(near)}?" if near else "is the name right, to the letter?"
    return Missing(did, Lack.NOWHERE, f"{did} is nowhere: no catalogue has it; {advice}", near=near)


def _state_of(fact: Fact | None) -> dict[str, Any]:
    """Return the fields of a Missing that say what the daemon holds true."""
    if fact is None:
        return {}
    return {"state": str(fact.state), "fraction": fact.fraction, "as_of": unix(fact.as_of)}


# --- counted ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DatasetCounts:
    """How many datasets of a job count at a site, and the others by what they are there.

    ``missing_bytes`` are still to come there; None where no size is known, and at least so many where
    not ``all_sized``. ``ready_at`` is when the last that is on its way is expected, Unix s.
    """

    here: int
    others: Mapping[str, int]
    missing_bytes: int | None = None
    all_sized: bool = True
    ready_at: int | None = None

    def text(self, now: datetime) -> str:
        """Return one line, such as ``232 here, 8 partial, 4 staging until 15:10 UTC, 360 GB missing``."""
        parts = [f"{self.here} here"]
        for word, number in self.others.items():
            until = f" until {clock(self.ready_at, now)}" if word == "staging" and self.ready_at else ""
            parts.append(f"{number} {word}{until}")
        if self.missing_bytes:
            least = "" if self.all_sized else "at least "
            parts.append(f"{least}{data_size(self.missing_bytes)} missing")
        return listed(parts)


def dataset_counts(job: Job, missing: Sequence[Missing]) -> DatasetCounts:
    """Count the datasets of *job* at a site by what they are there, the most frequent first."""
    counts = Counter(_word(one) for one in missing)
    sizes = [one.bytes for one in missing]
    known = [size for size in sizes if size is not None]
    staging = [one.ready_at for one in missing if _word(one) == "staging"]
    ends = [at for at in staging if at is not None]
    return DatasetCounts(
        here=len(job.datasets) + len(job.refused) - len(missing),
        others=dict(counts.most_common()),
        missing_bytes=sum(known) if known else None,
        all_sized=len(known) == len(sizes),
        ready_at=max(ends) if ends and len(ends) == len(staging) else None,
    )


def _word(one: Missing) -> str:
    """Return what a dataset is at a site, in a word or two."""
    words = {
        Lack.STALE: "not confirmed lately",
        Lack.NO_AGE: "of unknown age",
        Lack.LEFT_OUT: "left out",
        Lack.CLASH: "told apart by letter case alone",
        Lack.REFUSED: "no DID",
        Lack.PRIVATE: "private",
        Lack.UNSEEN: "not known",
        Lack.UNHYDRATED: "not said",
        Lack.ELSEWHERE: "absent",
        Lack.NOWHERE: "in no catalogue",
    }
    if word := words.get(one.lack):
        return word
    states = {DatasetState.NEARLINE: "on tape", DatasetState.AVAILABLE: "not said yet"}
    return next(
        (states.get(state, state.lower()) for state in DatasetState if state == one.state), "not asked yet"
    )


def data_text(job: Job, missing: Sequence[Missing], now: datetime) -> str:
    """Return the datasets that do not count in one line; of a job with several, first how many are what."""
    if missing and all(one.lack is Lack.UNHYDRATED for one in missing):
        return missing[0].text.partition(": ")[2]
    each = some([one.text for one in missing], "; ")
    several = len(job.datasets) + len(job.refused) > 1
    return f"{dataset_counts(job, missing).text(now)}: {each}" if several else each
