"""Pure functions that build the rows of the JSON answers from the state of the server."""

import difflib
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, cast
from urllib.parse import quote

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.set_answers import read_set_answers, read_site_answers
from hydrator.domain.model import Demand, Did, Fact, Site, SiteAd, Snapshot, to_unix
from hydrator.domain.provenance import public_provenance
from hydrator.domain.text import matches_any
from hydrator.server.view import ServerState, select_sets, total_bytes
from hydrator.staging.overview import explain_for_job
from hydrator.submit.dataset_paths import unlisted_paths
from hydrator.submit.nearest_names import add_similar_names

from .models import (
    DatasetAnswer,
    DatasetSetAnswer,
    FactAnswer,
    OutlookAnswer,
    ProvenanceAnswer,
    SiteAnswer,
)

NOT_ANSWERED: Final = "no catalogue has answered for this dataset yet"
MAX_NAME_COMPARED: Final = 200
"""Largest length, in characters, of a name for which the server looks for similar sites."""


def build_site_row(state: ServerState, ad: SiteAd) -> SiteAnswer:
    """Build the row of a site with an ad; without a publication time, use the present time."""
    facts = state.snapshot.sites.get(ad.site) if state.snapshot else None
    answers = read_site_answers(ad, state.now)
    return {
        "site": ad.site,
        "generation": ad.generation,
        "as_of": to_unix(ad.as_of),
        "age_seconds": _age_seconds(state.now, ad.as_of),
        "published_at": state.published_at.get(ad.site, state.now).timestamp(),
        "known_datasets": len(facts.facts) if facts else None,
        "held": state.held_reasons.get(ad.site),
        "ad": f"/v1/sites/{quote(ad.site, safe='')}/ad",
        "backlog": answers.backlog if answers.open_until is not None else None,
        "open_until": answers.open_until,
    }


def build_dataset_rows(
    state: ServerState, snapshot: Snapshot, dids: Iterable[Did], *, is_named: bool
) -> list[DatasetAnswer]:
    """Build the rows of *dids*.

    If the query names them, the rows have paths, and similar names for datasets that are at no site.
    """
    dids = list(dids)
    knowledge = state.knowledge
    similar = add_similar_names(knowledge, dids).similar_names if knowledge and is_named else {}
    demand = state.demand or Demand()
    public = [did for did in dids if is_named and not matches_any(did, demand.never)]
    paths = unlisted_paths(state.storage, public)
    collisions = {did: group for group in snapshot.case_collisions for did in group}
    collisions |= snapshot.misspelt_dids
    return [
        {
            "did": did,
            "demanded": did in demand.dids,
            "jobs": demand.job_counts.get(did, 0),
            "bytes": snapshot.bytes_total.get(did),
            "unseen": _unseen_reason(snapshot, did),
            "clashes_with": [other for other in collisions.get(did, ()) if other != did],
            "left_out_at": sorted(site for site, omitted in state.omitted_dids.items() if did in omitted),
            "similar_names": list(similar.get(did, ())),
            "sites": [
                _build_fact_row(site, facts.facts[did], state.now)
                for site, facts in sorted(snapshot.sites.items())
                if did in facts.facts
            ],
            "paths": [
                {"site": site, "path": path}
                for site, by_did in paths.items()
                if isinstance(path := by_did.get(did), str)
            ],
        }
        for did in dids
    ]


def _unseen_reason(snapshot: Snapshot, did: Did) -> str | None:
    reason = snapshot.unseen_reasons.get(did)
    return NOT_ANSWERED if reason is None and did in snapshot.unread_dids else reason


def build_set_rows(state: ServerState, keys: Collection[str]) -> list[DatasetSetAnswer]:
    """Build the rows of the demanded sets in *keys*; without *keys*, of the sets that most jobs need."""
    sets = select_sets(state, keys)
    keys_of_sets = {entry.key for entry in sets if entry.key is not None}
    answers = {site: read_set_answers(ad, state.now, keys_of_sets) for site, ad in sorted(state.ads.items())}
    return [
        {
            "key": entry.key,
            "datasets": len(entry.dids),
            "example": entry.dids[0],
            "jobs": entry.job_count,
            "bytes": total_bytes(entry.dids, state.snapshot),
            "sites": [
                {
                    "site": site,
                    "share": answer.share,
                    "as_of": answer.as_of,
                    "open_seconds": answer.open_seconds,
                    "read_from": answer.source,
                }
                for site, each in answers.items()
                if entry.key is not None and (answer := each.by_key.get(entry.key))
            ],
            "outlook": _build_outlook(state, entry.key),
            "staging": _explain_staging(state, entry.dids) if keys else None,
        }
        for entry in sets
    ]


def _build_outlook(state: ServerState, key: SetKey | None) -> OutlookAnswer | None:
    outlook = state.openings.outlooks.get(key) if state.openings and key else None
    if outlook is None:
        return None
    return {"reason": outlook.reason, "sites": list(outlook.sites), "before": outlook.before}


def _explain_staging(state: ServerState, dids: Sequence[Did]) -> list[str]:
    return list(explain_for_job(state.staging, dids, state.now)) if state.staging else []


def _build_fact_row(site: Site, fact: Fact, now: datetime) -> FactAnswer:
    return {
        "site": site,
        "state": fact.state,
        "fraction": fact.fraction,
        "as_of": to_unix(fact.as_of),
        "age_seconds": _age_seconds(now, fact.as_of),
        "provenance": cast("ProvenanceAnswer", public_provenance(fact.provenance)),
    }


def _age_seconds(now: datetime, time: datetime) -> int:
    """Return the age of *time* in whole seconds; 0 if *time* comes from a clock that is ahead of *now*."""
    return max(0, to_unix(now) - to_unix(time))


def find_similar_sites(name: str, sites: Collection[Site], limit: int = 5) -> list[Site]:
    """Return up to *limit* sites whose names look like *name*, without regard to letter case."""
    if len(name) > MAX_NAME_COMPARED:
        return []
    sites_by_lower: dict[str, list[Site]] = {}
    for site in sorted(sites):
        sites_by_lower.setdefault(site.lower(), []).append(site)
    matches = difflib.get_close_matches(name.lower(), list(sites_by_lower), n=limit, cutoff=0.5)
    return [site for lower in matches for site in sites_by_lower[lower]][:limit]
