"""Sites that cannot start a job now: its data is at no site. Pure."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from hydrator.domain.model import DaemonKnowledge, DatasetState, Did, Site
from hydrator.domain.text import shorten_list
from hydrator.submit.nearest_names import find_absent_dids
from hydrator.submit.outlook import describe_small_copy

from .missing_data import is_complete, state_words

MAX_ABSENT_NAMES = 50
"""Names of absent datasets in one answer: a user corrects them all at once."""


def explain_no_complete_site(beliefs: DaemonKnowledge, dids: AbstractSet[Did]) -> str:
    """Explain why no site can start a job with *dids* now.

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
    text = describe_small_copy(lacking, missing, sum(known.values()), site)
    return [(missing, text)] if text else []


def _describe_absent(beliefs: DaemonKnowledge, absent: Sequence[Did]) -> str:
    """Return the names of all *absent* datasets, and the similar names of those that have one."""
    plain = [did for did in absent if not beliefs.similar_names.get(did)]
    verb = "is" if len(plain) == 1 else "are"
    texts = [f"{shorten_list(plain, limit=MAX_ABSENT_NAMES)} {verb} in no catalogue"] if plain else []
    texts += [
        f"{did} is in no catalogue; did you mean {' or '.join(near)}?"
        for did in absent
        if (near := beliefs.similar_names.get(did))
    ]
    return "; ".join(texts)
