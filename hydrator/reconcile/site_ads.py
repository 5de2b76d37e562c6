"""Site ads: turn a snapshot into the ad of each site, within its size budget.

The ad must be small: HTCondor copies it for every slot, to the collector and to the negotiator. STARTD_CRON
cuts a line at 64 KiB (HTCondor: cron_job_io.cpp, STDOUT_LINEBUF_SIZE). Room is for the demanded sets first,
because jobs look up their set, then for the states of single datasets. If they do not all fit, the ad omits
the least demanded.

The ad has a line with the share of each set's bytes on disk, and a line with the time of the oldest fact of
each set that has an older fact than the site. The sets with a dataset at the site come first, the most
demanded first. Then come the other sets of jobs and pins: their share 0.0 says that the daemon knows the set
and that nothing is here. A set has its parts in all lines, or in none. A set with a wrong key has none.

An ad gets a new generation if, and only if, its content changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from hydrator.domain.ads import contract
from hydrator.domain.ads.classad import classad_string, list_literal, nested_ad_literal
from hydrator.domain.ads.contract import CONTRACT_VERSION
from hydrator.domain.ads.dataset_sets import SetKey, names_of, quote_key
from hydrator.domain.ads.openings import Openings, write_openings
from hydrator.domain.ads.set_answers import parse_entries, read_shares
from hydrator.domain.model import (
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Fact,
    Site,
    SiteAd,
    SiteFacts,
    Snapshot,
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


def choose_datasets(
    facts: Mapping[Did, Fact], dids: Iterable[Did], budget: Budget, as_of: datetime
) -> tuple[AbstractSet[Did], bool]:
    """Choose the datasets that fit into the ad of a site: *dids* in this order, until it is full.

    Args:
        facts: the facts of the site.
        dids: datasets, most demanded first; those without a fact are ignored.
        budget: the maximum bytes of a line, and of the long lines about datasets together.
        as_of: the time of the site's facts, in the ad for all datasets without an older fact.

    Returns:
        The datasets, and True if all of *dids* at the site fit.
    """
    site_as_of = to_unix(as_of)
    chosen: set[Did] = set()
    list_bytes, states_bytes, fractions_bytes, ages_bytes = _EMPTY_LINES_BYTES
    for did in dids:
        fact = facts.get(did)
        if fact is None or did in chosen:
            continue
        key = len(did) + _ENTRY_BYTES
        states_bytes += key + len(fact.state) + 2
        if fact.state is DatasetState.AVAILABLE:
            list_bytes += key - 1
        if is_partial(fact):
            fractions_bytes += key + 2 + FRACTION_DIGITS
        if fact.as_of is not None and to_unix(fact.as_of) < site_as_of:
            ages_bytes += key + 10
        total_bytes = list_bytes + states_bytes + fractions_bytes + ages_bytes
        if (
            max(states_bytes, fractions_bytes, ages_bytes) > budget.line_bytes
            or total_bytes > budget.ad_bytes
        ):
            return chosen, False
        chosen.add(did)
    return chosen, True


def is_partial(fact: Fact) -> bool:
    """Return True if a part of the dataset is on disk, but not all."""
    return fact.fraction is not None and 0.0 < round_down(fact.fraction) < 1.0


def round_down(fraction: float) -> float:
    """Round *fraction* down, so that an ad never claims too much and small changes do not change the ad.

    A number that an ad has stays as it is: 0.57 times 100 is a little less than 57.
    """
    scale: int = 10**FRACTION_DIGITS
    return int(fraction * scale + 1e-9) / scale


_MOST_OF_A_PART = 0.99
"""The largest share of a set whose datasets are not all AVAILABLE."""


def find_share(
    facts: Mapping[Did, Fact], snapshot: Snapshot, dids: Sequence[Did]
) -> tuple[float | None, datetime | None]:
    """Return the share (0 to 1) of the set *dids* on disk at a site, and the time of its oldest fact.

    *facts* are those of the site, without datasets that collide in letter case. The share is rounded down to
    hundredths; None if the daemon does not know the state of a dataset. The time is None if all facts have
    the time of the site.
    """
    if not snapshot.unread_dids.isdisjoint(dids):
        return None, None
    oldest, is_whole = None, True
    for did in dids:
        fact = facts.get(did)
        is_whole = is_whole and fact is not None and fact.state is DatasetState.AVAILABLE
        if fact is None:
            continue
        if fact.state is DatasetState.UNKNOWN:
            return None, None
        if fact.as_of is not None and (oldest is None or fact.as_of < oldest):
            oldest = fact.as_of
    return 1.0 if is_whole else min(_sum_share(facts, snapshot, dids), _MOST_OF_A_PART), oldest


def _sum_share(facts: Mapping[Did, Fact], snapshot: Snapshot, dids: Sequence[Did]) -> float:
    """Return the share on disk of the set *dids*, rounded down.

    If the size of a dataset is unknown, or all sizes are 0, each dataset has the same weight.
    """
    sizes = [size for did in dids if (size := snapshot.bytes_total.get(did)) is not None]
    if len(sizes) < len(dids) or not any(sizes):
        sizes = [1] * len(dids)
    found = map(facts.get, dids)
    return round_down(
        sum(size * _read_fraction(fact) for size, fact in zip(sizes, found, strict=True)) / sum(sizes)
    )


def _read_fraction(fact: Fact | None) -> float:
    """Return the fraction of a dataset on disk."""
    if fact is None:
        return 0.0
    return 1.0 if fact.state is DatasetState.AVAILABLE else min(max(fact.fraction or 0.0, 0.0), 1.0)


_Lines = tuple[tuple[str, str], ...]
"""Attributes with their ClassAd literals, in the order of the ad."""
_SetTexts = tuple[str, str]
"""The entries of one set in the two lines of sets; an empty text is no entry."""
_SET_LINES = (contract.SETS, contract.SETS_AS_OF)
_MIN_ENTRY_BYTES = len("=0.0;")


def _write_entries(name: str, share: float | None, at: int, site_at: int) -> _SetTexts:
    """Return the entries of the set *name*, whose oldest fact is of the time *at*, at a site of *site_at*."""
    if share is None:
        return "", ""
    return f"{name}={share};", f"{name}={at};" if at < site_at else ""


def _join_entries(texts: Mapping[SetKey, _SetTexts]) -> _Lines:
    """Return the two lines of sets, with the entries sorted by key."""
    columns = list(zip(*(texts[key] for key in sorted(texts)), strict=True)) or [(), ()]
    literals = (f"[{''.join(column).removesuffix(';')}]" for column in columns)
    return tuple(zip(_SET_LINES, literals, strict=True))


class SetLines(NamedTuple):
    """The lines of the sets in a site's ad, with their bytes, and the sets that have no room.

    ``here`` are the demand entries with a dataset at the site, ``omitted`` those of them without room.
    ``is_complete`` is True if the sets of which the site has nothing have room, too.
    """

    lines: _Lines
    size_bytes: int
    here: Sequence[DemandEntry]
    omitted: Sequence[DemandEntry]
    is_complete: bool


def write_set_lines(
    site: SiteFacts, snapshot: Snapshot, demand: Demand, names: Mapping[SetKey, str], budget: Budget
) -> SetLines:
    """Choose the sets that fit into the ad of a site, and write their lines.

    The choice of sets of which the site has nothing ends with the first that has no room. A set for which no
    job waits has an entry only where it is whole (``Demand.is_shared``).

    Args:
        site: the facts of the site, without datasets that collide in letter case.
        snapshot: has the sizes of the datasets, and those that no catalogue has answered for.
        demand: the demanded sets, most demanded first.
        names: the key of each demanded set, with its form in the lines of all sites.
        budget: the maximum bytes of a line and of an ad.
    """
    writer = _SetWriter(site, snapshot, names, budget)
    has_none_of = frozenset(site.facts).isdisjoint  # twice as fast as that of the keys
    here = [one for one in demand.entries if not has_none_of(one.dids)]
    omitted, rest = [], iter(here)
    for one in rest:
        if not writer.add(one, is_shared=demand.is_shared(one)):
            omitted.append(one)
            if writer.is_full:
                break
    omitted += [one for one in rest if one.key is not None and one.key not in writer.texts]
    is_complete = False
    if not (omitted and writer.is_full):
        keys_here = {one.key for one in here}
        is_complete = all(
            writer.add(one, is_absent=True)
            for one in demand.entries
            if demand.is_shared(one) and one.key not in keys_here
        )
    return SetLines(_join_entries(writer.texts), sum(writer.sizes), here, omitted, is_complete)


class _SetWriter:
    """A writer of the entries of sets, which counts the bytes of each line."""

    def __init__(
        self, site: SiteFacts, snapshot: Snapshot, names: Mapping[SetKey, str], budget: Budget
    ) -> None:
        self._facts = site.facts
        self._snapshot = snapshot
        self._names = names
        self._as_of = to_unix(site.as_of)
        self._line_limit = budget.line_bytes
        self._limit = budget.ad_bytes - STATE_LINES_BYTES
        self._shortest = min(map(len, names.values()), default=0)
        self.texts: dict[SetKey, _SetTexts] = {}
        self.sizes = len(f"{contract.SETS} = []"), len(f"{contract.SETS_AS_OF} = []")

    @property
    def is_full(self) -> bool:
        """Return True if not even the set with the shortest name has room."""
        return self.sizes[0] + self._shortest + _MIN_ENTRY_BYTES > self._line_limit

    def add(self, entry: DemandEntry, *, is_absent: bool = False, is_shared: bool = True) -> bool:
        """Add the set of *entry*, if its key is right; return False without room.

        *is_absent*: the site has nothing of the set, so its share needs no facts. *is_shared*: the set has an
        entry also where it is not whole.
        """
        key = entry.key
        if key is None or key in self.texts:
            return True
        name = self._names[key]
        if self.sizes[0] + len(name) + _MIN_ENTRY_BYTES > self._line_limit:
            return False  # its share would be computed for nothing
        if is_absent:
            share, oldest = 0.0 if self._snapshot.unread_dids.isdisjoint(entry.dids) else None, None
        else:
            share, oldest = find_share(self._facts, self._snapshot, entry.dids)
            if share is not None and share < 1 and not is_shared:
                return True
        at = self._as_of if oldest is None else to_unix(oldest)
        texts = _write_entries(name, share, at, self._as_of)
        shares_bytes, times_bytes = self.sizes[0] + len(texts[0]), self.sizes[1] + len(texts[1])
        if max(shares_bytes, times_bytes) > self._line_limit or shares_bytes + times_bytes > self._limit:
            return False
        self.texts[key], self.sizes = texts, (shares_bytes, times_bytes)
        return True


def names_any(ad: SiteAd, patterns: tuple[str, ...]) -> bool:
    """Return True if *ad* names a dataset that matches one of *patterns*."""
    names = (*states_of(ad), *(name for key in read_shares(ad) for name in names_of(key)))
    return any(matches_any(name, patterns) for name in names)


@dataclass(frozen=True, slots=True)
class Draft:
    """A site's ad before it has a generation, and the demand entries that do not fit into the ad."""

    site: Site
    as_of: datetime
    content: _Lines
    omitted_entries: tuple[DemandEntry, ...] = ()


def empty_draft(ad: SiteAd) -> Draft:
    """Return a draft without datasets, for a site whose facts in *ad* are too old or no longer valid."""
    content = render_content(ad.site, {}, ad.as_of, sets=_join_entries({}), is_truncated=False)
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
    shared = {entry.key for entry in filter(demand.is_shared, demand.entries)}
    sets = {
        key: _write_entries(quote_key(key), one.share, one.as_of, to_unix(ad.as_of))
        for key, one in read_shares(ad).items()
        if now - from_unix(one.as_of) <= max_age and key in (keys if one.share >= 1 else shared)
    }
    content = render_content(
        ad.site,
        dict(sorted(facts.items())),
        ad.as_of,
        sets=_join_entries(sets),
        is_truncated=lines.get(contract.TRUNCATED) == "true",
    )
    return Draft(ad.site, ad.as_of, content)


def states_of(ad: SiteAd) -> dict[Did, str]:
    """Return the states of the datasets that *ad* lists."""
    return _parse_states(_list_states(ad))


def changed_states(old: SiteAd | None, ad: SiteAd) -> tuple[dict[Did, str], dict[Did, str]]:
    """Return the states in *old* that *ad* does not list, and those in *ad* that *old* does not list."""
    before, after = (frozenset(_list_states(one).strip("[]").split(";")) for one in (old, ad))
    return _parse_states(";".join(before - after)), _parse_states(";".join(after - before))


def _list_states(ad: SiteAd | None) -> str:
    return dict(ad.content).get(contract.DATASET_STATES, "") if ad else ""


def _parse_states(entries: str) -> dict[Did, str]:
    return {Did(did): state.strip('"') for did, state in parse_entries(entries).items()}


def facts_of(ad: SiteAd) -> dict[Did, Fact]:
    """Return the facts that *ad* lists, each with its age.

    Skip entries that cannot be decoded.
    """
    lines = dict(ad.content)
    fractions = parse_entries(lines.get(contract.DATASET_FRACTIONS))
    ages = parse_entries(lines.get(contract.DATASET_AS_OF))
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
    sets: _Lines,
    is_truncated: bool,
) -> _Lines:
    """Return the content of an ad: attributes with their literals, in the order of the ad.

    Args:
        site: the site of the ad.
        states: the facts that the ad lists, sorted by DID.
        as_of: the time of the site's facts. The ad has the times of older facts.
        sets: the lines of the sets of datasets.
        is_truncated: the size budget left datasets or sets out.
    """
    available = [did for did, fact in states.items() if fact.state is DatasetState.AVAILABLE]
    return (
        (contract.SITE, classad_string(site)),
        (contract.AVAILABLE_DATASETS, list_literal(f'"{did}"' for did in available)),
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


def dids_without_room(drafts: Mapping[Site, Draft]) -> dict[Site, frozenset[Did]]:
    """Return, by site, the datasets of jobs for whose set the site's ad has no room."""
    return {
        site: frozenset(did for entry in draft.omitted_entries for did in entry.dids)
        for site, draft in drafts.items()
        if draft.omitted_entries
    }


def draft_site_ads(
    snapshot: Snapshot,
    demand: Demand,
    *,
    budget: Budget,
) -> Mapping[Site, Draft]:
    """Build the draft of every site's ad from *snapshot* and *demand*.

    Args:
        snapshot: the state of every dataset and site.
        demand: the demand, most demanded first.
        budget: the maximum bytes of a line and of an ad.

    Returns:
        The drafts, sorted by site. Datasets whose DIDs differ only in letter case are in no draft.
    """
    names = {one.key: quote_key(one.key) for one in demand.entries if one.key is not None}
    colliding = frozenset(did for clash in snapshot.case_collisions for did in clash)
    drafts = {}
    for site, facts in sorted(snapshot.sites.items()):
        rows = facts.facts
        listed = {did: fact for did, fact in rows.items() if did not in colliding} if colliding else rows
        drafts[site] = _draft(site, SiteFacts(facts.as_of, listed), demand, names, snapshot, budget)
    return drafts


def _draft(
    site: Site,
    facts: SiteFacts,
    demand: Demand,
    names: Mapping[SetKey, str],
    snapshot: Snapshot,
    budget: Budget,
) -> Draft:
    """Return the draft of the ad of *site*, whose *facts* have no colliding DIDs."""
    rows = facts.facts
    sets = write_set_lines(facts, snapshot, demand, names, budget)
    rest = replace(budget, ad_bytes=budget.ad_bytes - sets.size_bytes)
    demanded_dids = (did for entry in sets.here for did in entry.dids)
    listed, is_complete = choose_datasets(rows, demanded_dids, rest, facts.as_of)
    content = render_content(
        site,
        {did: rows[did] for did in sorted(listed)},
        facts.as_of,
        sets=sets.lines,
        is_truncated=not (sets.is_complete and not sets.omitted and is_complete),
    )
    return Draft(site, facts.as_of, content, tuple(sets.omitted))
