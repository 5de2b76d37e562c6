"""The documentation's address: the one base that every link to a page begins with.

``project.urls`` in pyproject.toml, the alerts and the systemd unit have the same base; a test compares them.
There is no published site, so the base is the copy that the wheel installs.
"""

import re
import sys
from pathlib import Path
from typing import Final

DOCUMENTATION: Final = "file:///opt/classad-hydrator/share/doc/classad-hydrator"
"""Where the pages are: those of the wheel, in the environment that the instructions install it into."""
_PAGE = re.compile(r"\bdocs/[\w-]+\.md\b")


def documentation() -> str:
    """Return the base of links: DOCUMENTATION, or the copy of this very environment or checkout."""
    copies = (Path(sys.prefix, "share", "doc", "classad-hydrator"), Path(__file__).parents[2] / "docs")
    if DOCUMENTATION.startswith("file:"):
        return next((one.as_uri() for one in copies if (one / "index.md").exists()), DOCUMENTATION)
    return DOCUMENTATION


def link_to_page(name: str, base: str = DOCUMENTATION) -> str:
    """Return the link to a page, such as ``metrics.md#hydratordown``."""
    return f"{base}/{name}"


def link_to_bug_report() -> str:
    """Return the link to how a bug is reported."""
    return link_to_page("report-a-bug.md", documentation())


def docs_folder_note(*texts: str) -> str | None:
    """Say where the folder is that *texts* call ``docs/``; None where they do not."""
    return f"docs/ is {documentation()}" if any(map(_PAGE.search, texts)) else None
