"""Nowhere: one sentence on datasets that no site has all of, for whoever submits a job. Pure."""

from collections.abc import Set as AbstractSet

from hydrator.domain.beliefs import Beliefs
from hydrator.domain.model import DatasetState, Did, Fact
from hydrator.domain.text import share, some
from hydrator.submit.nearest_names import nowhere


def nowhere_text(beliefs: Beliefs, dids: AbstractSet[Did]) -> str:
    """Say what keeps every site from starting a job with *dids* now; empty where one can, or nobody knows."""
    if lost := nowhere(beliefs, dids):
        return some([_lost(beliefs, did) for did in lost], "; ")
    looked_for = beliefs.demanded | beliefs.asked
    if not dids or any(did not in looked_for or did in beliefs.snapshot.unseen for did in dids):
        return ""
    each = []
    for site, here in sorted(beliefs.snapshot.sites.items()):
        facts = {did: here.facts[did] for did in dids if did in here.facts}
        lacking = [did for did in sorted(dids) if not _is_whole(facts.get(did))]
        if not lacking:
            return ""
        if facts:
            words = some([f"{did} {_state(facts.get(did))}" for did in lacking])
            each.append(f"{site} has {len(dids) - len(lacking)} of {len(dids)} ({words})")
    return f"no site has all of its data now: {some(each, '; ')}"


def _lost(beliefs: Beliefs, did: Did) -> str:
    near = beliefs.near.get(did, ())
    return f"{did} is in no catalogue" + (f"; did you mean {' or '.join(near)}?" if near else "")


def _is_whole(fact: Fact | None) -> bool:
    return fact is not None and fact.state is DatasetState.AVAILABLE


def _state(fact: Fact | None) -> str:
    return f"{fact.state}{share(fact.fraction)}" if fact else "absent"
