"""Drafts of site ads: write the lines of an ad, and read facts back from an ad."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from hydrator.domain.ads.classad import classad_string, list_literal, nested_ad_literal
from hydrator.domain.ads.contract import CONTRACT_VERSION
from hydrator.domain.ads.dataset_sets import SetKey, unmark_case
from hydrator.domain.model import DatasetState, DemandEntry, Did, Fact, Site, SiteAd, from_unix, to_unix
from hydrator.domain.text import matches_any
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL

from .budget import FRACTION_DIGITS, is_partial, round_down

_ENTRY = re.compile(r"'([^']+)'=([^;\]]+)")
"""One entry of a nested ad from :func:`nested_ad_literal`, such as ``'lofar:L1'="STAGING"``."""
_SET_ENTRY = re.compile(r"((?:'([^']+)'|([a-z0-9]+))=)([^;\]]+)")
"""One entry of a set: the key may be without quotes. The groups are name and ``=``, key, key, number."""
_NO_SETS = (("DataLocalitySets", "[]"), ("DataLocalitySetsAsOf", "[]"))


def names_any(ad: SiteAd, patterns: tuple[str, ...]) -> bool:
    """Return True if *ad* names a dataset that matches one of *patterns*."""
    names = (*facts_of(ad), *map(unmark_case, sets_of(ad)))
    return any(matches_any(name, patterns) for name in names)


@dataclass(frozen=True, slots=True)
class Draft:
    """A site's ad before it has a generation, and the demand entries that do not fit into the ad.

    Jobs do not use the estimates in ``content`` after ``estimates_until``; None if there are none.
    """

    site: Site
    as_of: datetime
    content: tuple[tuple[str, str], ...]
    omitted_entries: Sequence[DemandEntry] = ()
    estimates_until: datetime | None = None


class SetShare(NamedTuple):
    """A set of datasets in an ad: the share on disk, 0 to 1, and the time of the oldest fact."""

    share: float
    as_of: datetime


def empty_draft(ad: SiteAd) -> Draft:
    """Return a draft without datasets, for a site whose facts in *ad* are too old or no longer valid."""
    content = render_content(ad.site, {}, ad.as_of, sets=_NO_SETS, has_list=True, is_truncated=False)
    return Draft(ad.site, ad.as_of, content)


def redraft(ad: SiteAd, *, now: datetime, max_age: timedelta, never: tuple[str, ...] = ()) -> Draft:
    """Return a draft with the facts of *ad* and their ages. A fact older than *max_age* is UNKNOWN.

    A set with an older fact leaves the ad: its state is unknown. The draft has no estimates. Datasets that
    match one of the patterns *never*, which the operator may have set since, leave the ad too.
    """
    lines = dict(ad.content)
    facts = {
        did: fact if now - fact.as_of <= max_age else Fact(DatasetState.UNKNOWN, fact.as_of)
        for did, fact in facts_of(ad).items()
        if not matches_any(did, never)
    }
    fresh = {
        key
        for key, one in sets_of(ad).items()
        if now - one.as_of <= max_age and not matches_any(unmark_case(key), never)
    }
    content = render_content(
        ad.site,
        dict(sorted(facts.items())),
        ad.as_of,
        sets=[
            (name, _edit_sets(lines.get(name, "[]"), lambda key, text: text if key in fresh else None))
            for name, _ in _NO_SETS
        ],
        has_list="AvailableDatasets" in lines,
        is_truncated=lines.get("DataLocalityTruncated") == "true",
    )
    return Draft(ad.site, ad.as_of, content)


def sets_of(ad: SiteAd) -> dict[SetKey, SetShare]:
    """Return the sets that *ad* lists, each with the share on disk and the time of its oldest fact.

    Skip entries that cannot be decoded.
    """
    lines = dict(ad.content)
    ages = {key: text for _, key, text in _set_entries(lines.get("DataLocalitySetsAsOf", ""))}
    sets = {}
    for _, key, share in _set_entries(lines.get("DataLocalitySets", "")):
        with suppress(ValueError, OverflowError, OSError):
            sets[key] = SetShare(float(share), from_unix(int(ages[key])) if key in ages else ad.as_of)
    return sets


def _set_entries(literal: str) -> Iterable[tuple[str, SetKey, str]]:
    """Yield the entries of a nested ad: the text before the value, the key and the text of the value."""
    for start, quoted, plain, text in _SET_ENTRY.findall(literal):
        yield start, SetKey(quoted or plain), text


def _edit_sets(literal: str, edit: Callable[[SetKey, str], str | None]) -> str:
    """Return the nested ad *literal* with other values, without entries for which *edit* returns None."""
    entries = ((start, edit(key, text)) for start, key, text in _set_entries(literal))
    return f"[{';'.join(start + text for start, text in entries if text is not None)}]"


def facts_of(ad: SiteAd) -> dict[Did, Fact]:
    """Return the facts that *ad* lists, each with its age.

    Skip entries that cannot be decoded.
    """
    lines = dict(ad.content)
    fractions = dict(_ENTRY.findall(lines.get("DatasetFractions", "")))
    ages = dict(_ENTRY.findall(lines.get("DatasetAsOf", "")))
    facts = {}
    for did, state in _ENTRY.findall(lines.get("DatasetStates", "")):
        with suppress(ValueError, OverflowError, OSError):
            facts[Did(did)] = Fact(
                DatasetState(state.strip('"')),
                from_unix(int(ages[did])) if did in ages else ad.as_of,
                float(fractions[did]) if did in fractions else None,
            )
    return facts


def render_content(
    site: Site,
    states: Mapping[Did, Fact],
    as_of: datetime,
    *,
    sets: Iterable[tuple[str, str]],
    has_list: bool,
    is_truncated: bool,
) -> tuple[tuple[str, str], ...]:
    """Return the content of an ad: attributes with their literals, in the order of the ad.

    Args:
        site: the site of the ad.
        states: the facts that the ad lists, sorted by DID.
        as_of: the time of the site's facts. The ad has the times of older facts.
        sets: the lines of the sets of datasets.
        has_list: the ad has the attribute ``AvailableDatasets``.
        is_truncated: the size budget left datasets or sets out.
    """
    available = [did for did, fact in states.items() if fact.state is DatasetState.AVAILABLE]
    list_line = [("AvailableDatasets", list_literal(f'"{did}"' for did in available))] if has_list else []
    return (
        ("DataLocalitySite", classad_string(site)),
        *list_line,
        ("DatasetStates", nested_ad_literal((did, f'"{fact.state}"') for did, fact in states.items())),
        ("DatasetFractions", nested_ad_literal(_fractions(states))),
        ("DatasetAsOf", nested_ad_literal(_ages(states, as_of))),
        *sets,
        ("DataLocalityTruncated", "true" if is_truncated else "false"),
        ("DataLocalityVersion", str(CONTRACT_VERSION)),
    )


def _fractions(states: Mapping[Did, Fact]) -> Iterable[tuple[Did, str]]:
    return (
        (did, f"{round_down(fact.fraction):.{FRACTION_DIGITS}f}")
        for did, fact in states.items()
        if fact.fraction is not None and is_partial(fact)
    )


def _ages(states: Mapping[Did, Fact], as_of: datetime) -> Iterable[tuple[Did, str]]:
    of_site = to_unix(as_of)
    for did, fact in states.items():
        if fact.as_of is not AT_LAST_POLL and (at := to_unix(fact.as_of)) < of_site:
            yield did, str(at)
