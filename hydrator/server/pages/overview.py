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
from hydrator.domain.text import count, listed, share
from hydrator.reconcile.history import Entry
from hydrator.server.view import View

from .age_chart import picture
from .filters import PER_PAGE, STATES, Selection
from .html import age, document, moment, notice, row, table
from .why import form

MOST_CHANGES: Final = 15
MOST_NAMED: Final = 20
"""Datasets of a held change that are named."""
_SIGNS: Final = {
    DatasetState.AVAILABLE: "✔",
    DatasetState.STAGING: "↻",
    DatasetState.PARTIAL: "◐",
    DatasetState.NEARLINE: "▤",
    DatasetState.STUCK: "✖",
    DatasetState.UNKNOWN: "?",
}


def render(view: View, selected: Selection | None = None, *, jobs: bool = False) -> str:
    """The whole page, of the datasets that are *selected*; with *jobs*, jobs can be asked about."""
    known = view.snapshot or Snapshot({})
    body = (
        f"<header><h1>Where the data is</h1><p>Made {moment(view.now)}. For programs: "
        '<a href="/v1/sites">sites</a>, <a href="/v1/datasets">datasets</a>, '
        '<a href="/v1/openapi.json">OpenAPI</a>, <a href="/metrics">metrics</a>.</p></header>'
        f'<main id="main" tabindex="-1">{_trouble(view)}{_glance(known, view.demand)}'
        f"{_held(view)}{_jobs(jobs)}{_sites(view, known)}{_datasets(view, known, selected or Selection())}"
        f"{_changes(view.changes, view.now)}</main>"
    )
    return document("Where the data is", body)


def _trouble(view: View) -> str:
    whole = [("Not ready", view.ready), ("The daemon hangs", view.stuck)]
    parts = [("Failed in the last cycle", trouble) for trouble in view.troubles]
    return "".join(notice(f"<strong>{what}</strong>: {escape(why)}") for what, why in (*whole, *parts) if why)


# --- at a glance ------------------------------------------------------------------------------------------


def _glance(snapshot: Snapshot, demand: Demand | None) -> str:
    wants = demand.wants if demand else ()
    here = [_available(facts.facts) for facts in snapshot.sites.values()]
    jobs = sum(want.jobs for want in wants)
    placed = sum(want.jobs for want in wants if any(there.issuperset(want.dids) for there in here))
    dids = demand.dids if demand else frozenset()
    whole = len(dids & frozenset().union(*here))
    tiles = [
        (str(len(snapshot.sites)), "sites known"),
        (f"{whole} of {len(dids)}", "wanted datasets are whole at some site"),
        (f"{placed} of {jobs}", "jobs have all their data at one site"),
    ]
    shown = "".join(f"<li><b>{number}</b>{words}</li>" for number, words in tiles)
    return f'<h2>At a glance</h2><ul class="glance">{shown}</ul>'


def _available(facts: Mapping[Did, Fact]) -> frozenset[Did]:
    return frozenset(did for did, fact in facts.items() if fact.state is DatasetState.AVAILABLE)


# --- what waits -------------------------------------------------------------------------------------------


def _held(view: View) -> str:
    if not view.held:
        return ""
    parts = "".join(_held_at(site, text, view) for site, text in sorted(view.held.items()))
    return f"<h2>Ads that stay as they are</h2>{parts}"


def _held_at(site: Site, text: str, view: View) -> str:
    """A change that the breaker holds, a rollback, or an ad that waits for the answers it was made of."""
    name, shown = shlex.quote(site), escape(site)
    if held := view.waiting.get(site):
        said = f"<strong>A change at {shown} is held</strong> since {moment(held.since)}: {escape(text)}."
        told = notice(f"{said} <code>{escape(f'hydrator approve {name}')}</code> lets them go.")
        return told + _in_question(site, sorted(held.gone))
    if site in view.withheld:
        return notice(f"<strong>The ad of {shown} waits</strong>: {escape(text)}.")
    ends = f"<code>{escape(f'hydrator rollback {name} --end')}</code> ends that"
    return notice(f"<strong>{shown}</strong> is {escape(text)}. {ends}.")


def _in_question(site: Site, dids: Sequence[Did]) -> str:
    named = "".join(f"<li>{escape(did)}</li>" for did in dids[:MOST_NAMED])
    more = f"<li>and {len(dids) - MOST_NAMED} more</li>" if len(dids) > MOST_NAMED else ""
    words = f"{count(len(dids), 'dataset')} in question at {escape(site)}"
    return f"<details><summary>{words}</summary><ul>{named}{more}</ul></details>"


def _jobs(jobs: bool) -> str:
    words = "<p><code>hydrator why JOB</code> says so; this page does where it asks for tokens.</p>"
    return f"<h2>Why is a job idle?</h2>{form() if jobs else words}"


# --- sites ------------------------------------------------------------------------------------------------


def _sites(view: View, snapshot: Snapshot) -> str:
    sites = sorted(view.ads.keys() | snapshot.sites.keys())
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
    rows = (_site(site, view.ads.get(site), view, snapshot) for site in sites)
    return f"<h2>Sites</h2>{table('Sites, with the age of what is known of each', columns, rows)}"


def _site(site: Site, ad: SiteAd | None, view: View, snapshot: Snapshot) -> str:
    facts = snapshot.sites.get(site)
    as_of = facts.as_of if facts else ad.as_of if ad else None
    states = Counter(fact.state for fact in facts.facts.values()) if facts else {}
    known = listed(f"{states[state]} {state.value.lower()}" for state in DatasetState if state in states)
    trust = dict(ad.content).get("DataLocalityTrust", "1.000")[:4] if ad else "?"
    cells = (
        age(view.now, as_of) if as_of else "never",
        picture(site, facts.facts, now=view.now, bound=view.bound) if facts else "not read yet",
        (known or "none wanted here") if facts else "?",
        escape(trust),
        str(ad.generation) if ad else "not served",
    )
    return row(escape(site), cells)


# --- datasets ---------------------------------------------------------------------------------------------


def _datasets(view: View, snapshot: Snapshot, selected: Selection) -> str:
    jobs = jobs_by_did(view.demand)
    known = {did for facts in snapshot.sites.values() for did in facts.facts}
    dids = known | snapshot.unseen.keys() | (view.demand.dids if view.demand else frozenset())
    heading = '<h2 id="datasets">Datasets</h2>'
    if not dids:
        return f"{heading}<p>No dataset is wanted yet: no queued job names one, and none is pinned.</p>"
    chosen = sorted(selected.among(dids, snapshot), key=lambda did: (-jobs.get(did, 0), did))
    pages = max(1, -(-len(chosen) // PER_PAGE))
    page = min(selected.page, pages)
    shown = chosen[(page - 1) * PER_PAGE : page * PER_PAGE]
    sites = [site for site in sorted(snapshot.sites) if selected.site in {"", site}]
    rows = (_dataset(did, jobs.get(did, 0), sites, snapshot, view.now) for did in shown)
    many = f"{count(len(chosen), 'dataset')}{f' of {len(dids)}' if selected.chosen else ''}"
    part = f", {(page - 1) * PER_PAGE + 1} to {(page - 1) * PER_PAGE + len(shown)}" if pages > 1 else ""
    found = (
        table(
            f"{many} by site, those that most jobs want first{part}",
            ("Dataset", "Jobs", *sites),
            rows,
            "Datasets",
        )
        if chosen
        else "<p>None is like that.</p>"
    )
    return f"{heading}{_form(selected, sorted(snapshot.sites))}{found}{_pages(selected, page, pages)}"


def jobs_by_did(demand: Demand | None) -> Mapping[Did, int]:
    """How many jobs want each dataset."""
    jobs: Counter[Did] = Counter()
    for want in demand.wants if demand else ():
        for did in want.dids:
            jobs[did] += want.jobs
    return jobs


def _form(selected: Selection, sites: Iterable[str]) -> str:
    return (
        '<form method="get" action="/#datasets" role="search">'
        '<div><label for="find">Name contains</label>'
        f'<input id="find" name="find" type="search" maxlength="500" value="{escape(selected.find)}"></div>'
        f"{_choice('site', 'Site', 'all sites', sites, selected.site)}"
        f"{_choice('state', 'State', 'any state', STATES, selected.state)}"
        '<button>Show</button><a href="/#datasets">Show all</a></form>'
    )


def _choice(name: str, label: str, none: str, values: Iterable[str], chosen: str) -> str:
    options = "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>{escape(value)}</option>'
        for value in values
    )
    return (
        f'<div><label for="{name}">{label}</label><select id="{name}" name="{name}">'
        f'<option value="">{none}</option>{options}</select></div>'
    )


def _pages(selected: Selection, page: int, pages: int) -> str:
    if pages == 1:
        return ""
    around = [("First", 1), ("Previous", page - 1), ("Next", page + 1), ("Last", pages)]
    links = "".join(
        f'<li><a href="/?{escape(selected.at_page(to))}#datasets">{words}</a></li>'
        for words, to in around
        if 1 <= to <= pages and to != page
    )
    here = f'<li><span aria-current="page">Page {page} of {pages}</span></li>'
    return f'<nav aria-label="Pages of datasets"><ul>{here}{links}</ul></nav>'


def _dataset(did: Did, jobs: int, sites: Sequence[Site], snapshot: Snapshot, now: datetime) -> str:
    why = snapshot.unseen.get(did)
    note = f"<small>not asked: {escape(why)}</small>" if why else ""
    nothing = "not known" if why else "not here"  # what could not be asked about is not absent
    cells = "".join(_cell(snapshot.sites[site].facts.get(did), nothing, now) for site in sites)
    return f'<tr><th scope="row">{escape(did)}{note}</th><td>{jobs}</td>{cells}</tr>'


def _cell(fact: Fact | None, nothing: str, now: datetime) -> str:
    if fact is None:
        return f"<td>{nothing}</td>"
    part = share(fact.fraction) if fact.fraction is not None and 0 < fact.fraction < 1 else ""
    state = fact.state.value.lower()
    sign = f'<span aria-hidden="true">{_SIGNS[fact.state]}</span> '
    return f'<td class="{state}">{sign}{state}{part}<small>{age(now, fact.as_of)}</small></td>'


# --- what changed -----------------------------------------------------------------------------------------


def _changes(changes: Sequence[Entry], now: datetime) -> str:
    if not changes:
        return "<h2>What changed lately</h2><p>Nothing since the state was made.</p>"
    rows = (_change(one, now) for one in reversed(changes[-MOST_CHANGES:]))
    columns = ("Decided", "Site", "What", "For example")
    shown = table("What was decided lately, newest first", columns, rows)
    return f"<h2>What changed lately</h2>{shown}<p><code>hydrator history</code> tells more.</p>"


def _change(one: Entry, now: datetime) -> str:
    first = one.changes[0] if one.changes else None
    states = f"{first.before or 'not listed'} to {first.after or 'not listed'}, {first.why}" if first else ""
    example = f"{first.did}: {states}" if first else ""
    when = f"{moment(one.at)}<small>{age(now, one.at)}</small>"
    return row(when, (escape(one.ad.site), escape(one.text), escape(example)))
