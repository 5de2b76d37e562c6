"""Page of one dataset: where it is, who said so, its requests, and the jobs that wait. Pure."""

from typing import Final

from hydrator.diagnostics.overview.runs import count_idle_jobs
from hydrator.diagnostics.problems import describe_dataset
from hydrator.domain.model import DaemonKnowledge, Did
from hydrator.server.view import ServerState, view_datasets

from .html import render_page

MAX_SETS: Final = 20
"""Largest number of sets of datasets that the page lists."""


def render_dataset_page(did: Did, server_state: ServerState, knowledge: DaemonKnowledge) -> str:
    """Render the page of *did*."""
    load, demand = server_state.load, server_state.demand
    (dataset,) = view_datasets(server_state, knowledge, [did])
    sets = sorted(
        (entry for entry in demand.entries if did in entry.dids and entry.job_count),
        key=lambda entry: (-entry.job_count, entry.dids),
    )
    return render_page(
        "dataset.html",
        f"Dataset {did}",
        version=server_state.version,
        now=server_state.now,
        dataset=dataset,
        note=describe_dataset(dataset, server_state.now),
        idle_count=count_idle_jobs(did, load, demand) if load else None,
        silent_schedds=load.unseen_reason if load else None,
        sets=sets[:MAX_SETS],
        more_sets=max(0, len(sets) - MAX_SETS),
        requests=[row for row in staging.requests if row.did == did]
        if (staging := server_state.staging)
        else (),
    )
