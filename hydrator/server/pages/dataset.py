"""Page of one dataset: where it is, who said so, its requests, and the jobs that wait. Pure."""

from dataclasses import dataclass
from typing import Final

from hydrator.diagnostics.overview.runs import count_idle_jobs
from hydrator.domain.model import Demand, Did, Fact, Site, Snapshot
from hydrator.domain.provenance import describe_provenance
from hydrator.server.view import ServerState
from hydrator.staging.overview import find_requests

from .html import SIGNS, PageContext, render_page

MAX_SETS: Final = 20
"""Largest number of sets of datasets that the page lists."""


@dataclass(frozen=True, slots=True)
class _PlaceRow:
    """The dataset at one site."""

    site: Site
    fact: Fact
    source: str


def is_dataset_known(did: Did, server_state: ServerState) -> bool:
    """Return whether a job, a pin or a pattern names *did*, or a site has it."""
    snapshot, demand = server_state.snapshot or Snapshot({}), server_state.demand or Demand()
    return (
        did in demand.dids
        or did in snapshot.unseen_reasons
        or any(did in facts.facts for facts in snapshot.sites.values())
    )


def render_dataset_page(did: Did, server_state: ServerState, *, context: PageContext | None = None) -> str:
    """Render the page of *did*."""
    snapshot, demand = server_state.snapshot or Snapshot({}), server_state.demand or Demand()
    load = server_state.load
    places = [
        _PlaceRow(site, fact, describe_provenance(fact.provenance, server_state.now))
        for site, facts in sorted(snapshot.sites.items())
        if (fact := facts.facts.get(did))
    ]
    sets = sorted(
        (entry for entry in demand.entries if did in entry.dids and entry.job_count),
        key=lambda entry: (-entry.job_count, entry.dids),
    )
    return render_page(
        "dataset.html",
        f"Dataset {did}",
        context=context,
        now=server_state.now,
        did=did,
        size=snapshot.bytes_total.get(did),
        places=places,
        unseen_reason=snapshot.unseen_reasons.get(did),
        similar=snapshot.misspelt_dids.get(did, ()),
        omitted_at=sorted(site for site, dids in server_state.omitted_dids.items() if did in dids),
        job_count=sum(entry.job_count for entry in sets),
        idle_count=count_idle_jobs(did, load, demand) if load else None,
        silent_schedds=load.unseen_reason if load else None,
        sets=sets[:MAX_SETS],
        more_sets=max(0, len(sets) - MAX_SETS),
        requests=find_requests(server_state.staging, [did]) if server_state.staging else (),
        signs=SIGNS,
    )
