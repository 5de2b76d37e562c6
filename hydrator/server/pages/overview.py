"""The page for people: what waits, sites with the age of what is known, datasets by sites, what changed.

Pure text from values. Colour is never the only sign; it works without scripts, in light and dark.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Final

from hydrator.domain.model import DatasetState, Demand, Did, Fact, Site, SiteAd, Snapshot
from hydrator.domain.text import comma_separated, format_count, format_percent
from hydrator.reconcile.history import HistoryEntry
from hydrator.server.view import ServerState

from .age_chart import render_chart
from .filters import PER_PAGE, STATES, Selection
from .html import format_age, render_document, render_notice, render_row, render_table, render_time
from .why import render_job_form

MAX_CHANGES: Final = 15
MAX_HELD_DIDS: Final = 20
"""Datasets of a held change that are named."""
_SIGNS: Final = {
    DatasetState.AVAILABLE: "✔",
    DatasetState.STAGING: "↻",
    DatasetState.PARTIAL: "◐",
    DatasetState.NEARLINE: "▤",
    DatasetState.STUCK: "✖",
    DatasetState.UNKNOWN: "?",
}


def render_overview(
    server_state: ServerState, selection: Selection | None = None, *, can_explain_jobs: bool = False
) -> str:
    """The whole page, of the datasets that are *selected*; with *jobs*, jobs can be asked about."""
    known = server_state.snapshot or Snapshot({})
    body = (
        f"<header><h1>Where the data is</h1><p>Made {render_time(server_state.now)}. For programs: "
        '<a href="/v1/sites">sites</a>, <a href="/v1/datasets">datasets</a>, '
        '<a href="/v1/openapi.json">OpenAPI</a>, <a href="/metrics">metrics</a>.</p></header>'
        f'<main id="main" tabindex="-1">{_render_problems(server_state)}{_render_summary(known, server_state.demand)}'
        f"{_render_held_ads(server_state)}{_render_job_section(can_explain_jobs)}{_render_sites(server_state, known)}{_render_datasets(server_state, known, selection or Selection())}"
        f"{_render_changes(server_state.changes, server_state.now)}</main>"
    )
    return render_document("Where the data is", body)


def _render_problems(server_state: ServerState) -> str:
    whole = [("Not ready", server_state.not_ready_reason), ("The daemon hangs", server_state.hang_reason)]
    parts = [("Failed in the last cycle", trouble) for trouble in server_state.troubles]
    return "".join(
        render_notice(f"<strong>{what}</strong>: {escape(why)}") for what, why in (*whole, *parts) if why
    )


# --- at a glance ------------------------------------------------------------------------------------------


def _render_summary(snapshot: Snapshot, demand: Demand | None) -> str:
    wants = demand.entries if demand else ()
    here = [_available_dids(facts.facts) for facts in snapshot.sites.values()]
    jobs = sum(want.job_count for want in wants)
    placed = sum(want.job_count for want in wants if any(there.issuperset(want.dids) for there in here))
    dids = demand.dids if demand else frozenset()
    whole = len(dids & frozenset().union(*here))
    tiles = [
        (str(len(snapshot.sites)), "sites known"),
        (f"{whole} of {len(dids)}", "wanted datasets are whole at some site"),
        (f"{placed} of {jobs}", "jobs have all their data at one site"),
    ]
    shown = "".join(f"<li><b>{number}</b>{words}</li>" for number, words in tiles)
    return f'<h2>At a glance</h2><ul class="glance">{shown}</ul>'


def _available_dids(facts: Mapping[Did, Fact]) -> frozenset[Did]:
    return frozenset(did for did, fact in facts.items() if fact.state is DatasetState.AVAILABLE)


# --- what waits -------------------------------------------------------------------------------------------


def _render_held_ads(server_state: ServerState) -> str:
    if not server_state.held_reasons:
        return ""
    parts = "".join(
        _render_held_ad(site, text, server_state) for site, text in sorted(server_state.held_reasons.items())
    )
    return f"<h2>Ads that stay as they are</h2>{parts}"


def _render_held_ad(site: Site, text: str, server_state: ServerState) -> str:
    """A change that the breaker holds, a rollback, or an ad that waits for the answers it was made of."""
    name, shown = shlex.quote(site), escape(site)
    if held := server_state.held_losses.get(site):
        said = f"<strong>A change at {shown} is held</strong> since {render_time(held.started_at)}: {escape(text)}."
        told = render_notice(f"{said} <code>{escape(f'hydrator approve {name}')}</code> lets them go.")
        return told + _render_held_dids(site, sorted(held.missing_polls))
    if site in server_state.withheld_reasons:
        return render_notice(f"<strong>The ad of {shown} waits</strong>: {escape(text)}.")
    ends = f"<code>{escape(f'hydrator rollback {name} --end')}</code> ends that"
    return render_notice(f"<strong>{shown}</strong> is {escape(text)}. {ends}.")


def _render_held_dids(site: Site, dids: Sequence[Did]) -> str:
    named = "".join(f"<li>{escape(did)}</li>" for did in dids[:MAX_HELD_DIDS])
    more = f"<li>and {len(dids) - MAX_HELD_DIDS} more</li>" if len(dids) > MAX_HELD_DIDS else ""
    words = f"{format_count(len(dids), 'dataset')} in question at {escape(site)}"
    return f"<details><summary>{words}</summary><ul>{named}{more}</ul></details>"


def _render_job_section(can_explain_jobs: bool) -> str:
    words = "<p><code>hydrator why JOB</code> says so; this page does where it asks for tokens.</p>"
    return f"<h2>Why is a job idle?</h2>{render_job_form() if can_explain_jobs else words}"


# --- sites ------------------------------------------------------------------------------------------------


def _render_sites(server_state: ServerState, snapshot: Snapshot) -> str:
    sites = sorted(server_state.ads.keys() | snapshot.sites.keys())
    if not sites:
        return "<h2>Sites</h2><p>No site is known yet.</p>"
    columns = (
        "Site",
        "Last complete reading",
        "Age of what is known",
        "Datasets",
        "Trust",
        "Generation served",
    )
    rows = (_render_site(site, server_state.ads.get(site), server_state, snapshot) for site in sites)
    return f"<h2>Sites</h2>{render_table('Sites, with the age of what is known of each', columns, rows)}"


def _render_site(site: Site, ad: SiteAd | None, server_state: ServerState, snapshot: Snapshot) -> str:
    facts = snapshot.sites.get(site)
    as_of = facts.as_of if facts else ad.as_of if ad else None
    states = Counter(fact.state for fact in facts.facts.values()) if facts else {}
    known = comma_separated(
        f"{states[state]} {state.value.lower()}" for state in DatasetState if state in states
    )
    trust = dict(ad.content).get("DataLocalityTrust", "1.000")[:4] if ad else "?"
    cells = (
        format_age(server_state.now, as_of) if as_of else "never",
        render_chart(site, facts.facts, now=server_state.now, max_age=server_state.max_age)
        if facts
        else "not read yet",
        (known or "none wanted here") if facts else "?",
        escape(trust),
        str(ad.generation) if ad else "not served",
    )
    return render_row(escape(site), cells)


# --- datasets ---------------------------------------------------------------------------------------------


def _render_datasets(server_state: ServerState, snapshot: Snapshot, selection: Selection) -> str:
    jobs = jobs_by_did(server_state.demand)
    known = {did for facts in snapshot.sites.values() for did in facts.facts}
    dids = (
        known
        | snapshot.unseen_reasons.keys()
        | (server_state.demand.dids if server_state.demand else frozenset())
    )
    heading = '<h2 id="datasets">Datasets</h2>'
    if not dids:
        return f"{heading}<p>No dataset is wanted yet: no queued job names one, and none is pinned.</p>"
    chosen = sorted(selection.filter_dids(dids, snapshot), key=lambda did: (-jobs.get(did, 0), did))
    pages = max(1, -(-len(chosen) // PER_PAGE))
    page = min(selection.page, pages)
    shown = chosen[(page - 1) * PER_PAGE : page * PER_PAGE]
    sites = [site for site in sorted(snapshot.sites) if selection.site in {"", site}]
    rows = (_render_dataset(did, jobs.get(did, 0), sites, snapshot, server_state.now) for did in shown)
    many = f"{format_count(len(chosen), 'dataset')}{f' of {len(dids)}' if selection.has_filters else ''}"
    part = f", {(page - 1) * PER_PAGE + 1} to {(page - 1) * PER_PAGE + len(shown)}" if pages > 1 else ""
    found = (
        render_table(
            f"{many} by site, those that most jobs want first{part}",
            ("Dataset", "Jobs", *sites),
            rows,
            "Datasets",
        )
        if chosen
        else "<p>None is like that.</p>"
    )
    return f"{heading}{_render_filter_form(selection, sorted(snapshot.sites))}{found}{_render_page_links(selection, page, pages)}"


def jobs_by_did(demand: Demand | None) -> Mapping[Did, int]:
    """How many jobs want each dataset."""
    jobs: Counter[Did] = Counter()
    for want in demand.entries if demand else ():
        for did in want.dids:
            jobs[did] += want.job_count
    return jobs


def _render_filter_form(selection: Selection, sites: Iterable[str]) -> str:
    return (
        '<form method="get" action="/#datasets" role="search">'
        '<div><label for="find">Name contains</label>'
        f'<input id="find" name="find" type="search" maxlength="500" value="{escape(selection.name_contains)}"></div>'
        f"{_render_select('site', 'Site', 'all sites', sites, selection.site)}"
        f"{_render_select('state', 'State', 'any state', STATES, selection.state)}"
        '<button>Show</button><a href="/#datasets">Show all</a></form>'
    )


def _render_select(name: str, label: str, any_label: str, values: Iterable[str], selected_value: str) -> str:
    options = "".join(
        f'<option value="{escape(value)}"{" selected" if value == selected_value else ""}>{escape(value)}</option>'
        for value in values
    )
    return (
        f'<div><label for="{name}">{label}</label><select id="{name}" name="{name}">'
        f'<option value="">{any_label}</option>{options}</select></div>'
    )


def _render_page_links(selection: Selection, page: int, pages: int) -> str:
    if pages == 1:
        return ""
    around = [("First", 1), ("Previous", page - 1), ("Next", page + 1), ("Last", pages)]
    links = "".join(
        f'<li><a href="/?{escape(selection.query_for_page(to))}#datasets">{words}</a></li>'
        for words, to in around
        if 1 <= to <= pages and to != page
    )
    here = f'<li><span aria-current="page">Page {page} of {pages}</span></li>'
    return f'<nav aria-label="Pages of datasets"><ul>{here}{links}</ul></nav>'


def _render_dataset(did: Did, jobs: int, sites: Sequence[Site], snapshot: Snapshot, now: datetime) -> str:
    why = snapshot.unseen_reasons.get(did)
    note = f"<small>not asked: {escape(why)}</small>" if why else ""
    nothing = "not known" if why else "not here"  # what could not be asked about is not absent
    cells = "".join(_render_cell(snapshot.sites[site].facts.get(did), nothing, now) for site in sites)
    return f'<tr><th scope="row">{escape(did)}{note}</th><td>{jobs}</td>{cells}</tr>'


def _render_cell(fact: Fact | None, absent_text: str, now: datetime) -> str:
    if fact is None:
        return f"<td>{absent_text}</td>"
    part = format_percent(fact.fraction) if fact.fraction is not None and 0 < fact.fraction < 1 else ""
    state = fact.state.value.lower()
    sign = f'<span aria-hidden="true">{_SIGNS[fact.state]}</span> '
    return f'<td class="{state}">{sign}{state}{part}<small>{format_age(now, fact.as_of)}</small></td>'


# --- what changed -----------------------------------------------------------------------------------------


def _render_changes(changes: Sequence[HistoryEntry], now: datetime) -> str:
    if not changes:
        return "<h2>What changed lately</h2><p>Nothing since the state was made.</p>"
    rows = (_render_change(one, now) for one in reversed(changes[-MAX_CHANGES:]))
    columns = ("Decided", "Site", "What", "For example")
    shown = render_table("What was decided lately, newest first", columns, rows)
    return f"<h2>What changed lately</h2>{shown}<p><code>hydrator history</code> tells more.</p>"


def _render_change(entry: HistoryEntry, now: datetime) -> str:
    first = entry.changes[0] if entry.changes else None
    states = (
        f"{first.state_before or 'not listed'} to {first.state_after or 'not listed'}, {first.reason}"
        if first
        else ""
    )
    example = f"{first.did}: {states}" if first else ""
    when = f"{render_time(entry.decided_at)}<small>{format_age(now, entry.decided_at)}</small>"
    return render_row(when, (escape(entry.ad.site), escape(entry.text), escape(example)))
