"""Templates of the pages for people: each page is one HTML text, complete without its one small script.

Colour is never the only sign of a state. A page is light or dark as the reader's browser asks.
"""

import base64
import hashlib
import shlex
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hydrator.domain.model import from_unix
from hydrator.domain.provenance import describe_provenance, provenance_from_row
from hydrator.domain.text import format_age, format_bytes, format_count, format_duration, format_percent

_STYLE: Final = (files(__package__) / "templates" / "style.css").read_text("utf-8")
STYLE_HASH: Final = "sha256-" + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
"""Source of the Content-Security-Policy that allows this style and no other."""
SCRIPT: Final = (files(__package__) / "templates" / "page.js").read_bytes()
"""The script of the pages: renewal, and times in the reader's zone."""
SCRIPT_PATH: Final = "/page.js"
_SCRIPT_URL: Final = f"{SCRIPT_PATH}?{hashlib.sha256(SCRIPT).hexdigest()[:12]}"


def _to_time(moment: datetime | float) -> datetime:
    """Return the time of Unix seconds; a time is returned as it is."""
    return moment if isinstance(moment, datetime) else from_unix(moment)


def format_short_age(time: datetime, now: datetime) -> str:
    """Return how long ago *time* was, in one unit: ``2 min``."""
    return " ".join(format_duration((now - time).total_seconds()).split()[:2])


def format_share(share: float | None) -> str:
    """Return a share, 0 to 1, in percent, rounded down; a question mark if it is not known."""
    return format_percent(share).strip() or "?"


def build_bar(counts: Mapping[str, int]) -> list[tuple[str, float, float]]:
    """Build a bar of 100 units: class, left edge and width of each part that is not empty.

    No part is too thin to see.
    """
    total = sum(counts.values())
    widths = {kind: max(2.0, 100 * count / total) for kind, count in counts.items() if count}
    parts, left = [], 0.0
    for kind, width in widths.items():
        scaled = 100 * width / sum(widths.values())
        parts.append((kind, round(left, 1), round(scaled, 1)))
        left += scaled
    return parts


_ENVIRONMENT: Final = Environment(
    loader=PackageLoader(__package__),
    autoescape=True,
    auto_reload=False,
    keep_trailing_newline=True,
    lstrip_blocks=True,
    trim_blocks=True,
    undefined=StrictUndefined,
)
_ENVIRONMENT.filters |= {
    "utc": _to_time,
    "source": lambda row, now: describe_provenance(provenance_from_row(row), now),
    "age": format_age,
    "short_age": format_short_age,
    "bytes": format_bytes,
    "count": format_count,
    "duration": format_duration,
    "share": format_share,
    "percent": format_percent,
    "thousands": "{:,}".format,
    "shell_quote": shlex.quote,
}
for _name in _ENVIRONMENT.list_templates(extensions=["html"]):
    _ENVIRONMENT.get_template(_name)  # compiled now, so that no reader waits for it


def render_page(template: str, title: str, *, version: str | None = None, **values: object) -> str:
    """Render the file *template* of ``templates/``; every value is escaped.

    A page with a *version* renews itself when the daemon has another one.
    """
    style = Markup(_STYLE)  # noqa: S704 - the text is a file of this package
    return _ENVIRONMENT.get_template(template).render(
        title=title,
        style=style,
        version=version,
        script_url=_SCRIPT_URL,
        **values,
    )
