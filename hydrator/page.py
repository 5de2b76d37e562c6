"""The page for people: sites by datasets, as one HTML text without outside assets.

Colour is never the only sign; it works without scripts, in light and dark.
"""

import base64
import hashlib
from collections.abc import Mapping
from datetime import datetime
from html import escape
from typing import Final

from .model import Demand, Did, Fact, Site, SiteAd, Snapshot

MAX_ROWS: Final = 500

STYLE: Final = """
:root{color-scheme:light dark}
body{font:1rem/1.5 system-ui,sans-serif;margin:1.5rem;max-width:100rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;margin:1rem 0}
caption{text-align:left;font-weight:600;padding:.25rem 0}
th,td{border:1px solid #8888;padding:.25rem .6rem;text-align:left;vertical-align:top}
small{display:block}
.available{background:#3a74}.staging{background:#38c4}.stuck{background:#c534}.unknown{background:#8884}
.notice{border-left:.3rem solid #c93;padding:.3rem .8rem}
"""
STYLE_HASH: Final = "sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()


def render(
    ads: Mapping[Site, SiteAd],
    snapshot: Snapshot | None,
    demand: Demand | None,
    *,
    ready: str | None,
    now: datetime,
    held: Mapping[Site, str] | None = None,
) -> str:
    """The whole page; *ready* is None, or why the state is not complete yet; *held* what waits, by site."""
    notices = [f"Not ready: {ready}"] if ready else []
    notices += [f"A change at {site} is held: {text}" for site, text in sorted((held or {}).items())]
    notice = "".join(f'<p class="notice" role="status">{escape(text)}</p>' for text in notices)
    known = snapshot or Snapshot({})
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Where the data is</title><style>{STYLE}</style></head><body><main>"
        f"<h1>Where the data is</h1><p>Made {_moment(now)}. Also for programs: "
        '<a href="/v1/sites">sites</a>, <a href="/v1/datasets">datasets</a>, '
        '<a href="/metrics">metrics</a>.</p>'
        f"{notice}{_sites(ads, known, now)}{_datasets(known, demand, now)}</main></body></html>\n"
    )


def _sites(ads: Mapping[Site, SiteAd], snapshot: Snapshot, now: datetime) -> str:
    rows = "".join(
        _site(site, ads.get(site), snapshot, now) for site in sorted(ads.keys() | snapshot.sites.keys())
    )
    head = _header("Site", "Last complete reading", "Datasets known", "Trust", "Generation served")
    return _table("Sites", head, rows) if rows else "<p>No site is known yet.</p>"


def _site(site: Site, ad: SiteAd | None, snapshot: Snapshot, now: datetime) -> str:
    facts = snapshot.sites.get(site)
    as_of = facts.as_of if facts else ad.as_of if ad else None
    age = f"{_age(now, as_of)} ago" if as_of else "never"
    generation = str(ad.generation) if ad else "not served"
    known = str(len(facts.facts)) if facts else "?"
    trust = dict(ad.content).get("DataLocalityTrust", "1.000")[:4] if ad else "?"
    cells = "".join(f"<td>{cell}</td>" for cell in (age, known, trust, generation))
    return f'<tr><th scope="row">{escape(site)}</th>{cells}</tr>'


def _datasets(snapshot: Snapshot, demand: Demand | None, now: datetime) -> str:
    known = {did for facts in snapshot.sites.values() for did in facts.facts}
    dids = sorted(known | snapshot.unseen.keys() | (demand.dids if demand else frozenset()))
    if not dids:
        return "<p>No dataset is wanted yet: no queued job names one, and none is pinned.</p>"
    sites = sorted(snapshot.sites)
    rows = "".join(_dataset(did, sites, snapshot, now) for did in dids[:MAX_ROWS])
    more = len(dids) - MAX_ROWS
    rest = (
        f'<p>{more} more are left out here; <a href="/v1/datasets">all as JSON</a>.</p>' if more > 0 else ""
    )
    return _table("Datasets", _header("Dataset", *sites), rows) + rest


def _dataset(did: Did, sites: list[Site], snapshot: Snapshot, now: datetime) -> str:
    why = snapshot.unseen.get(did)
    note = f"<small>not asked: {escape(why)}</small>" if why else ""
    nothing = "not known" if why else "not here"  # what could not be asked about is not absent
    cells = "".join(_cell(snapshot.sites[site].facts.get(did), nothing, now) for site in sites)
    return f'<tr><th scope="row">{escape(did)}{note}</th>{cells}</tr>'


def _cell(fact: Fact | None, nothing: str, now: datetime) -> str:
    if fact is None:
        return f"<td>{nothing}</td>"
    share = f" {fact.fraction:.0%}" if fact.fraction is not None and 0 < fact.fraction < 1 else ""
    state = fact.state.value.lower()
    return f'<td class="{state}">{state}{share}<small>{_age(now, fact.as_of)} ago</small></td>'


def _table(caption: str, head: str, rows: str) -> str:
    return (
        f'<div class="scroll" role="region" aria-label="{caption}" tabindex="0">'
        f"<table><caption>{caption}</caption><thead>{head}</thead><tbody>{rows}</tbody></table></div>"
    )


def _header(*names: str) -> str:
    return "<tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in names) + "</tr>"


def _moment(when: datetime) -> str:
    return f'<time datetime="{when.isoformat()}">{when:%Y-%m-%d %H:%M:%S} UTC</time>'


def _age(now: datetime, then: datetime) -> str:
    """In one unit: seconds below two minutes, minutes below two hours, hours below two days."""
    seconds = max(0, int((now - then).total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit} {name}"
    return f"{seconds // 86400} d"
