"""Templates of the pages for people: each page is one HTML text, without scripts or external files.

Colour is never the only sign of a state. A page is light or dark as the reader's browser asks.
"""

import base64
import hashlib
import shlex
from datetime import datetime
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hydrator.domain.text import format_count, format_duration, format_percent

_STYLE: Final = (files(__package__) / "templates" / "style.css").read_text("utf-8")
STYLE_HASH: Final = "sha256-" + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
"""Source of the Content-Security-Policy that allows this style and no other."""


def format_age(time: datetime, now: datetime) -> str:
    """Return how long ago *time* was; "0 s ago" if *time* comes from a clock that is ahead of *now*."""
    return f"{format_duration((now - time).total_seconds())} ago"


def _build_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        auto_reload=False,
        keep_trailing_newline=True,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "age": format_age,
        "count": format_count,
        "percent": format_percent,
        "shell_quote": shlex.quote,
    }
    return environment


_ENVIRONMENT: Final = _build_environment()


def render_page(template: str, title: str, **values: object) -> str:
    """Render the file *template* of ``templates/``; every value is escaped."""
    style = Markup(_STYLE)  # noqa: S704 - the text is a file of this package
    return _ENVIRONMENT.get_template(template).render(title=title, style=style, **values)
