"""The fenced blocks of the pages: each says behind its fence where a test runs it."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "classad-hydrator" / "README.md"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

HOMES = {
    "toml": "tests/unit/project/test_docs.py loads it as the daemon's configuration",
    "python": "tests/integration/test_recipes.py runs it with the tool that it is for",
    "toml pyproject": "tests/unit/project/test_docs.py reads it, and the port it names",
    "json": "tests/unit/project/test_docs.py gives it to the frontend's own reader",
    **dict.fromkeys(
        (
            *(
                "toml catalogue",
                "json catalogue",
                "text datasets",
                "text tokens",
                "text ad",
                "text hookcache",
            ),
            *("json order", "json staging", "json journal", "json paths", "json affinity", "json log"),
        ),
        "tests/unit/project/test_file_formats.py gives it to the program that reads such files",
    ),
    "text condor": "tests/integration/test_docs_on_a_pool.py configures a pool with it",
    "text submit": "tests/integration/test_docs_on_a_pool.py submits it",
    "text promql": "tests/deploy/test_metrics.py has promtool check it",
    "text output": "printed by a command, whose own tests compare it; nobody types it",
    "text picture": "a drawing",
    "yaml prometheus": "tests/deploy/test_metrics.py has promtool check it",
    "yaml values": "tests/deploy/test_helm.py renders the chart with it",
    "sh runnable": "tests/unit/project/test_docs.py runs it in an empty folder",
    "sh pool": "tests/integration/test_docs_on_a_pool.py runs it beside a daemon and a pool",
    "sh toil": "tests/integration/test_docs_on_a_pool.py runs it; Toil and Rapthor are stand-ins",
    "sh logs": "tests/unit/project/test_docs.py runs it; journalctl is a stand-in with a daemon's log",
    "sh locality": "tests/integration/test_locality.py runs it by a daemon; sbatch, nextflow: stand-ins",
    "text panda": "tests/integration/test_neighbours.py configures PanDA with it",
    "text dirac": "tests/integration/test_neighbours.py configures DIRAC with it",
    "sh staging": "tests/integration/test_staging_end_to_end.py runs it beside a daemon, a pool and a Rucio",
    "sh rucio": "tests/integration/test_staging_end_to_end.py runs it with Rucio's own client and server",
    "sh alerts": "tests/deploy/test_metrics.py runs it beside the alerts",
    "sh systemd": "tests/deploy/test_booted.py runs it on a Debian 12 with its systemd",
    "sh packages": "tests/deploy/test_packages.py runs it on a Debian 12 with its systemd",
    "sh install": "tests/unit/project/test_docs.py looks for what is installed; test_booted.py installs it",
    "sh playground": "tests/integration/test_playground.py types it into one shell of make playground",
    "sh bare": "tests/integration/test_playground.py types it into one shell of make playground POOL=bare",
    "sh checkout": "tests/unit/project/test_docs.py runs it in this checkout",
    "sh demo": "tests/unit/project/test_docs.py looks for the target; test_demo.py runs the demo",
    "sh kubernetes": "tests/unit/project/test_docs.py looks for what it names: there is no cluster here",
}
"""By the words behind a fence, the home of such blocks. A block of other words, or of none, has no home."""


@dataclass(frozen=True)
class Block:
    """A fenced block: the *page* it is on, the *words* behind its fence, its *text* without an indent."""

    page: str
    words: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0][:40]}"


_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:\A|\n)\s*\n((?: {4}| *\t)[^\n]*)")


def blocks(words: str | None = None) -> list[Block]:
    """Return the blocks of all pages, in order; only those with these *words* where some are given."""
    found = [block for page in (*PAGES, CHART) for block in _blocks_of(page)]
    return [block for block in found if words in {None, block.words}]


def homeless(text: str) -> list[str]:
    """Return the first line of each block in *text* whose words name no home, or that has no fence."""
    strays = [match[3].strip() for match in _FENCE.finditer(text) if match[2].strip() not in HOMES]
    unfenced = _INDENTED.findall(_FENCE.sub("```", text))
    return [each.strip().splitlines()[0] for each in (*strays, *unfenced)]


def _blocks_of(page: Path) -> Iterator[Block]:
    for match in _FENCE.finditer(page.read_text("utf-8")):
        name = str(page.relative_to(ROOT).parent / page.name) if page == CHART else page.name
        yield Block(name, match[2].strip(), textwrap.dedent(match[3]))
