"""The fenced blocks of the pages: the words behind a fence say which test uses the block."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "classad-hydrator" / "README.md"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@dataclass(frozen=True)
class Block:
    """A fenced block: the *page* it is on, the *words* behind its fence, its *text* without an indent."""

    page: str
    words: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0][:40]}"


def script(name: str) -> ModuleType:
    """Return the module of a file in scripts/, which is not a package."""
    spec = spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def blocks(words: str | None = None) -> list[Block]:
    """Return the blocks of all pages, in order; only those with these *words* where some are given."""
    found = [block for page in (*PAGES, CHART) for block in _blocks_of(page)]
    return [block for block in found if words in {None, block.words}]


def _blocks_of(page: Path) -> Iterator[Block]:
    for match in _FENCE.finditer(page.read_text("utf-8")):
        name = str(page.relative_to(ROOT).parent / page.name) if page == CHART else page.name
        yield Block(name, match[2].strip(), textwrap.dedent(match[3]))
