"""Datasets that are at no site, with similar names, and why no site can start a job now. Pure."""

from collections.abc import Container, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from hydrator.domain.model import DaemonKnowledge, DatasetState, Did, Site
from hydrator.domain.text import did_you_mean, format_bytes, shorten_list
from hydrator.submit.nearest_names import MAX_SEARCHED, similar_names

from .missing_data import is_complete, state_words

MAX_ABSENT_NAMES = 50
"""Names of absent datasets in one answer: a user corrects them all at once."""
SMALL_PART = 0.1
"""Share of a job's bytes below which the rest at a site is called small: advice names it."""


def find_absent_dids(knowledge: DaemonKnowledge, dids: Iterable[Did]) -> list[Did]:
    """Return those of *dids* that the daemon polled and found at no site."""
    polled = knowledge.demanded_dids | knowledge.queried_dids
    sites = knowledge.snapshot.sites.values()
    return [
        did
        for did in sorted(dids)
        if did in polled
        and did not in knowledge.snapshot.unseen_reasons
        and not any(did in site.facts for site in sites)
    ]


def add_similar_names(
    knowledge: DaemonKnowledge, dids: Iterable[Did], names: Iterable[Did] = ()
) -> DaemonKnowledge:
    """Return *knowledge* with similar names for those of *dids* that are at no site.

    The similar names come from *names* and from the snapshot.
    """
    absent = find_absent_dids(knowledge, dids)
    if not absent:
        return knowledge
    known = knowledge.snapshot.present_dids.union(names)
    near = {did: similar for did in absent[:MAX_SEARCHED] if (similar := similar_names(did, known))}
    return replace(knowledge, similar_names={**knowledge.similar_names, **near})


def is_small_part(missing_bytes: int, total_bytes: int | None) -> bool:
    """Return True if a site lacks only a small part of a job's bytes."""
    return total_bytes is not None and missing_bytes < SMALL_PART * total_bytes


def explain_no_complete_site(
    beliefs: DaemonKnowledge, dids: AbstractSet[Did], readable_sites: Container[Site] | None = None
) -> str:
    """Explain why no site can start a job with *dids* now.

    A copy of a small part is advised only to *readable_sites*, where the job finds its data; None: to any.
    Return an empty text if a site can start the job, or if the answer is unknown.
    """
    if absent := find_absent_dids(beliefs, dids):
        return _describe_absent(beliefs, absent)
    looked_for = beliefs.demanded_dids | beliefs.queried_dids
    if not dids or any(did not in looked_for or did in beliefs.snapshot.unseen_reasons for did in dids):
        return ""
    site_texts, copies = [], []
    for site, site_facts in sorted(beliefs.snapshot.sites.items()):
        facts = {did: site_facts.facts[did] for did in dids if did in site_facts.facts}
        lacking = [did for did in sorted(dids) if not is_complete(facts.get(did))]
        if not lacking:
            return ""
        if facts:
            words = shorten_list([f"{did} {state_words(facts.get(did))}" for did in lacking])
            site_texts.append(f"{site} has {len(dids) - len(lacking)} of {len(dids)} ({words})")
        if readable_sites is None or site in readable_sites:
            copies += _small_copies(beliefs, dids, site, lacking)
    best = min(copies)[1] if copies else ""
    return f"no site has all data of the job now: {shorten_list(site_texts, '; ')}{best}"


def _small_copies(
    beliefs: DaemonKnowledge, dids: AbstractSet[Did], site: Site, lacking: Sequence[Did]
) -> list[tuple[int, str]]:
    """Return the bytes of *lacking*, and their copy to *site* in words, if these are a small part."""
    sizes = {did: beliefs.snapshot.bytes_total.get(did) for did in dids}
    known = {did: size for did, size in sizes.items() if size is not None}
    facts = beliefs.snapshot.sites[site].facts
    is_absent = all(did not in facts or facts[did].state is DatasetState.PARTIAL for did in lacking)
    if len(known) < len(sizes) or not is_absent:
        return []
    fractions = {did: facts[did].fraction or 0 for did in lacking if did in facts}
    missing = round(sum(known[did] * (1 - fractions.get(did, 0)) for did in lacking))
    if not is_small_part(missing, sum(known.values())):
        return []
    copied = f"a copy of {shorten_list(lacking)} ({format_bytes(missing)}) to {site} would be enough"
    return [(missing, f"; {copied}")]


def _describe_absent(beliefs: DaemonKnowledge, absent: Sequence[Did]) -> str:
    """Return the names of all *absent* datasets, and the similar names of those that have one."""
    placeless = [did for did in absent if did in beliefs.snapshot.bytes_total]
    plain = [did for did in absent if did not in placeless and not beliefs.similar_names.get(did)]
    texts = [
        f"{shorten_list(names, limit=MAX_ABSENT_NAMES)} {'is' if len(names) == 1 else 'are'} {where}"
        for names, where in ((placeless, "at no site"), (plain, "in no catalogue"))
        if names
    ]
    texts += [
        f"{did} is in no catalogue; {did_you_mean(near)}"
        for did in absent
        if did not in placeless and (near := beliefs.similar_names.get(did))
    ]
    return "; ".join(texts)
