"""How pages for people are written: one HTML text, no script, nothing from outside.

Colour is never the only sign; light and dark follow what the reader's system asks for.
"""

import base64
import hashlib
from collections.abc import Iterable
from datetime import datetime
from html import escape
from typing import Final

from hydrator.domain.text import format_duration

STYLE: Final = """
:root{color-scheme:light dark;--ink:#1b1b1a;--paper:#fff;--soft:#f2f2ef;--line:#85857f;--link:#0b4f9e;
--good:#d8eed9;--move:#fbeec4;--bad:#f9d8d3;--dim:#e7e7e4;--bar:#2c6e3f;--late:#a3271d}
@media (prefers-color-scheme:dark){:root{--ink:#ececea;--paper:#161615;--soft:#242422;--line:#7f7f79;
--link:#8cc0ff;--good:#1d4025;--move:#4a3c0c;--bad:#5a211b;--dim:#333330;--bar:#74c987;--late:#ff9c90}}
body{font:1rem/1.5 system-ui,sans-serif;margin:0 auto;padding:1.5rem;max-width:100rem;color:var(--ink);
background:var(--paper)}
a{color:var(--link)}
h2{margin:2rem 0 .25rem}
:focus-visible{outline:.2rem solid var(--link);outline-offset:.15rem}
.skip{position:absolute;left:-100rem}
.skip:focus{position:static}
.scroll{overflow-x:auto}
table{border-collapse:collapse;margin:.75rem 0}
caption{text-align:left;font-weight:600;padding:.25rem 0}
th,td{border:1px solid var(--line);padding:.25rem .6rem;text-align:left;vertical-align:top}
thead th{background:var(--soft)}
tbody th{font-weight:500;overflow-wrap:anywhere;min-width:9rem}
small{display:block}
code{background:var(--soft);padding:.1rem .3rem;overflow-wrap:anywhere}
.available{background:var(--good)}.staging,.partial,.nearline{background:var(--move)}
.stuck{background:var(--bad)}.unknown{background:var(--dim)}
.notice{border-left:.3rem solid var(--late);padding:.3rem .8rem;background:var(--soft)}
.glance{display:flex;flex-wrap:wrap;gap:.75rem;padding:0;list-style:none}
.glance li{border:1px solid var(--line);padding:.4rem .8rem;background:var(--soft)}
.glance b{display:block;font-size:1.5rem;line-height:1.2}
form{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:end;margin:.75rem 0}
label{display:block}
input,select,button{font:inherit;color:inherit;background:var(--paper);border:1px solid var(--line);
padding:.3rem .5rem;max-width:100%}
nav ul{display:flex;flex-wrap:wrap;gap:1rem;padding:0;list-style:none}
svg{display:block;forced-color-adjust:none}
svg .frame{fill:none;stroke:var(--line)}svg .bar{fill:var(--bar)}svg .late{fill:var(--late)}
"""
STYLE_HASH: Final = "sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()


def render_document(title: str, body: str) -> str:
    """A whole page; *title* is plain text, *body* is HTML."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f'<a class="skip" href="#main">Skip to the content</a>{body}</body></html>\n'
    )


def render_table(caption: str, columns: Iterable[str], rows: Iterable[str], name: str = "") -> str:
    """A table that scrolls sideways by itself, also by keyboard; *rows* are HTML, the rest is plain text."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    label = escape(name or caption)
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">'
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def render_row(head: str, cells: Iterable[str]) -> str:
    """A row with its own header; all HTML."""
    return f'<tr><th scope="row">{head}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def render_notice(html: str) -> str:
    return f'<p class="notice">{html}</p>'


def render_time(time: datetime) -> str:
    return f'<time datetime="{time.isoformat()}">{time:%Y-%m-%d %H:%M:%S} UTC</time>'


def format_age(now: datetime, time: datetime) -> str:
    """How long ago; what is not past yet, by another clock, is 0 s ago."""
    return f"{format_duration((now - time).total_seconds())} ago"
