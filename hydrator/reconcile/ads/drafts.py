"""Drafts of site ads: their lines, the size of an ad and what fits into it, and their generations.

The datasets whose states fit into the ad are chosen, most demanded first. The demanded sets come before
(``set_lines.py``): jobs look up their set. The choice ends when the ad is full, so it does not read all
demand entries. The daemon repeats the choice for every site in each cycle.

An ad gets a new generation if, and only if, its content changes.
"""

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from hydrator.domain.ads import contract
from hydrator.domain.ads.classad import classad_string, list_literal, nested_ad_literal
from hydrator.domain.ads.contract import CONTRACT_VERSION
from hydrator.domain.ads.dataset_sets import names_of, quote_key
from hydrator.domain.ads.openings import Openings, write_openings
from hydrator.domain.ads.set_answers import read_shares
from hydrator.domain.model import (
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Fact,
    Site,
    SiteAd,
    from_unix,
    to_unix,
)
from hydrator.domain.text import matches_any
from hydrator.domain.untrusted import is_ahead
from hydrator.reconcile.snapshot.merge import limit_age

FRACTION_DIGITS = 2
_EMPTY_LINES_BYTES = tuple(
    len(f"{name} = []")
    for name in (
        contract.AVAILABLE_DATASETS,
        contract.DATASET_STATES,
        contract.DATASET_FRACTIONS,
        contract.DATASET_AS_OF,
    )
)
STATE_LINES_BYTES = sum(_EMPTY_LINES_BYTES)
"""The bytes of the long lines about datasets in an ad without datasets."""
_ENTRY_BYTES = 4
"""The bytes of an entry without its key and value: two quotes, the equals sign and the separator."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The maximum bytes of one attribute's line, and of all long attributes together.

    Long are the attributes with an entry for each dataset, or for each set of datasets.
    """

    line_bytes: int = 60_000
    ad_bytes: int = 240_000


BUDGET: Final = Budget()
"""The sizes that a collector and a startd of every supported release take."""


class ListedDatasets(NamedTuple):
    """The datasets whose states a site's ad lists.

    ``has_list`` is True if the attribute ``AvailableDatasets`` fits too. ``is_complete`` is True if all
    demanded datasets at the site fit.
    """

    dids: AbstractSet[Did]
    has_list: bool
    is_complete: bool


def choose_datasets(
    facts: Mapping[Did, Fact], dids: Iterable[Did], budget: Budget, as_of: datetime
) -> ListedDatasets:
    """Choose the datasets whose states fit into the ad of a site: *dids* in this order, until it is full.

    If the list ``AvailableDatasets`` of these datasets does not fit too, the ad omits it: job expressions do
    not need this attribute.

    Args:
        facts: the facts of the site.
        dids: datasets, most demanded first; those without a fact are ignored.
        budget: the maximum bytes of a line, and of the long lines about datasets together.
        as_of: the time of the site's facts, in the ad for all datasets without an older fact.
    """
    site_as_of = to_unix(as_of)
    chosen: set[Did] = set()
    list_bytes, states_bytes, fractions_bytes, ages_bytes = _EMPTY_LINES_BYTES
    chosen_bytes, is_complete = STATE_LINES_BYTES, True
    for did in dids:
        fact = facts.get(did)
        if fact is None or did in chosen:
            continue
        key = len(did) + _ENTRY_BYTES
        states_bytes += key + len(fact.state) + 2
        if is_partial(fact):
            fractions_bytes += key + 2 + FRACTION_DIGITS
        if fact.as_of is not None and to_unix(fact.as_of) < site_as_of:
            ages_bytes += key + 10
        total_bytes = _EMPTY_LINES_BYTES[0] + states_bytes + fractions_bytes + ages_bytes
        if (
            max(states_bytes, fractions_bytes, ages_bytes) > budget.line_bytes
            or total_bytes > budget.ad_bytes
        ):
            is_complete = False
            break
        chosen.add(did)
        chosen_bytes = total_bytes
        if fact.state is DatasetState.AVAILABLE:
            list_bytes += key - 1
    all_bytes = chosen_bytes + list_bytes - _EMPTY_LINES_BYTES[0]
    return ListedDatasets(chosen, all_bytes <= budget.ad_bytes, is_complete)


def is_partial(fact: Fact) -> bool:
    """Return True if a part of the dataset is on disk, but not all."""
    return fact.fraction is not None and 0.0 < round_down(fact.fraction) < 1.0


def round_down(fraction: float) -> float:
    """Round *fraction* down, so that an ad never claims too much and small changes do not change the ad.

    A number that an ad has stays as it is: 0.57 times 100 is a little less than 57.
    """
    scale: int = 10**FRACTION_DIGITS
    return int(fraction * scale + 1e-9) / scale


_ENTRY = re.compile(r"'([^']+)'=([^;\]]+)")
"""One entry of a nested ad from :func:`nested_ad_literal`, such as ``'lofar:L1'="STAGING"``."""
_NO_SETS = ((contract.SETS, "[]"), (contract.SETS_AS_OF, "[]"))


def names_any(ad: SiteAd, patterns: tuple[str, ...]) -> bool:
    """Return True if *ad* names a dataset that matches one of *patterns*."""
    names = (*states_of(ad), *(name for key in read_shares(ad) for name in names_of(key)))
    return any(matches_any(name, patterns) for name in names)


@dataclass(frozen=True, slots=True)
class Draft:
    """A site's ad before it has a generation, and the demand entries that do not fit into the ad."""

    site: Site
    as_of: datetime
    content: tuple[tuple[str, str], ...]
    omitted_entries: tuple[DemandEntry, ...] = ()


def empty_draft(ad: SiteAd) -> Draft:
    """Return a draft without datasets, for a site whose facts in *ad* are too old or no longer valid."""
    content = render_content(ad.site, {}, ad.as_of, sets=_NO_SETS, has_list=True, is_truncated=False)
    return Draft(ad.site, ad.as_of, content)


def redraft(ad: SiteAd, demand: Demand, *, now: datetime, max_age: timedelta) -> Draft:
    """Return a draft with the demanded facts of *ad* and their ages; one older than *max_age* is UNKNOWN.

    A set with an older fact leaves the ad: its state is unknown.
    """
    lines = dict(ad.content)
    facts = {
        did: limit_age(fact, ad.as_of, now, max_age)
        for did, fact in facts_of(ad).items()
        if did in demand.dids
    }
    keys = {entry.key for entry in demand.entries}
    sets = [
        (quote_key(key), one)
        for key, one in sorted(read_shares(ad).items())
        if key in keys and now - from_unix(one.as_of) <= max_age
    ]
    ages = (f"{name}={one.as_of}" for name, one in sets if one.as_of < to_unix(ad.as_of))
    content = render_content(
        ad.site,
        dict(sorted(facts.items())),
        ad.as_of,
        sets=(
            (contract.SETS, f"[{';'.join(f'{name}={one.share}' for name, one in sets)}]"),
            (contract.SETS_AS_OF, f"[{';'.join(ages)}]"),
        ),
        has_list=contract.AVAILABLE_DATASETS in lines,
        is_truncated=lines.get(contract.TRUNCATED) == "true",
    )
    return Draft(ad.site, ad.as_of, content)


def states_of(ad: SiteAd) -> dict[Did, str]:
    """Return the states of the datasets that *ad* lists."""
    entries = _ENTRY.findall(dict(ad.content).get(contract.DATASET_STATES, ""))
    return {Did(did): state.strip('"') for did, state in entries}


def facts_of(ad: SiteAd) -> dict[Did, Fact]:
    """Return the facts that *ad* lists, each with its age.

    Skip entries that cannot be decoded.
    """
    lines = dict(ad.content)
    fractions = dict(_ENTRY.findall(lines.get(contract.DATASET_FRACTIONS, "")))
    ages = dict(_ENTRY.findall(lines.get(contract.DATASET_AS_OF, "")))
    facts = {}
    for did, state in states_of(ad).items():
        with suppress(ValueError, OverflowError, OSError):
            facts[did] = Fact(
                DatasetState(state),
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
    list_line = (
        [(contract.AVAILABLE_DATASETS, list_literal(f'"{did}"' for did in available))] if has_list else []
    )
    return (
        (contract.SITE, classad_string(site)),
        *list_line,
        (
            contract.DATASET_STATES,
            nested_ad_literal((did, f'"{fact.state}"') for did, fact in states.items()),
        ),
        (contract.DATASET_FRACTIONS, nested_ad_literal(_fractions(states))),
        (contract.DATASET_AS_OF, nested_ad_literal(_ages(states, as_of))),
        *sets,
        (contract.TRUNCATED, "true" if is_truncated else "false"),
        (contract.VERSION, str(CONTRACT_VERSION)),
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
        if fact.as_of is not None and (at := to_unix(fact.as_of)) < of_site:
            yield did, str(at)


def assign_generations(
    drafts: Mapping[Site, Draft],
    previous_ads: Mapping[Site, SiteAd],
    *,
    published_generations: Mapping[Site, int],
    now: datetime,
) -> dict[Site, SiteAd]:
    """Return the ad of every draft, with a new generation only if the content changed.

    A generation is a Unix time. If a generation is ``MAX_AHEAD`` or more ahead of *now*, the
    generation was forged or the clock was wrong. Hooks reject an ad with this generation, so the ad gets
    a new generation, which starts from *now*.

    Args:
        drafts: by site, the content to advertise.
        previous_ads: by site, the last ad that got a generation.
        published_generations: by site, the highest generation read back from any publisher, so that a
            daemon that lost its state does not send a lower generation.
        now: aware UTC time of this cycle.
    """
    ads = {}
    for site, draft in drafts.items():
        old = previous_ads.get(site)
        published_generation = _plausible_generation(published_generations.get(site, 0), now)
        if (
            old
            and old.content == draft.content
            and old.generation >= published_generation
            and not is_ahead(old.generation, now)
        ):
            generation = old.generation
        else:
            highest = max(_plausible_generation(old.generation, now) if old else 0, published_generation)
            generation = max(highest + 1, to_unix(now))
        ads[site] = SiteAd(site, min(draft.as_of, now), generation, draft.content)
    return ads


def add_openings(
    ads: Mapping[Site, SiteAd], previous_ads: Mapping[Site, SiteAd], made: Openings | None, now: datetime
) -> dict[Site, SiteAd]:
    """Return *ads* with the openings of this round; without a round, with those that are still valid.

    If a site's openings are the old ones, they also keep their end until half of their time is over: so an
    ad is not sent in each round for a new end alone.
    """
    result = {}
    for site, ad in ads.items():
        old = previous_ads.get(site)
        lines, until = (old.openings, old.open_until) if old else ((), None)
        if made is not None:
            new_lines = write_openings(made.openings.get(site, {}), made.backlog.get(site, 0))
            new_until = from_unix(made.open_until)
            if (
                lines != new_lines
                or until is None
                or (until - now) * 2 < new_until - now
                or until > new_until
            ):
                lines, until = new_lines, new_until
        is_valid = until is not None and until > now
        result[site] = replace(ad, openings=lines, open_until=until) if is_valid else ad
    return result


def _plausible_generation(generation: int, now: datetime) -> int:
    """Return *generation*, or 0 if it is so far ahead of *now* that hooks reject it."""
    return 0 if is_ahead(generation, now) else generation
