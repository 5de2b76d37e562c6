"""Links to the documentation: they have one base, and every page and heading that they name exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hydrator.domain.text import DOCUMENTATION, docs_folder_note, documentation
from tests.unit.project.test_docs import anchors

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SHIPPED = ("hydrator", "adapters", "toil_batch_system_classad_hydrator")
_MENTION = re.compile(r"\bdocs/([\w/-]+\.md)(#[\w-]+)?")
_LINK = re.compile(rf"{re.escape(DOCUMENTATION)}/([\w./-]+)(#[\w-]+)?")
LINKED = [
    "deploy/prometheus/alerts.yml", "deploy/prometheus/alerts_test.yml",
    "deploy/systemd/hydrator.service",
]  # fmt: skip


def leads(page: str, anchor: str) -> bool:
    """Is there such a page, with such a heading?"""
    file = DOCS / page if (DOCS / page).exists() else ROOT / page
    return file.exists() and (not anchor or anchor.lstrip("#") in anchors(file))


def told() -> Iterator[tuple[str, str, str]]:
    """Every text of the code and of what is deployed that names a page: where, the page and the heading."""
    for folder in SHIPPED:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    for page, anchor in _MENTION.findall(node.value):
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", page, anchor
    for path in [ROOT / "config.example.toml", *(ROOT / "deploy").rglob("*")]:
        if path.is_file() and path.suffix not in {".json", ".tgz", ".pyc"}:
            for page, anchor in _MENTION.findall(path.read_text("utf-8")):
                yield str(path.relative_to(ROOT)), page, anchor


def test_every_docs_page_named_in_a_message_exists():
    named = list(told())
    assert len(named) > 50
    assert [one for one in named if not leads(*one[1:])] == []


@pytest.mark.parametrize("name", LINKED)
def test_every_link_begins_with_the_one_base_and_leads_to_a_heading(name):
    text = (ROOT / name).read_text("utf-8")
    found = _LINK.findall(text)
    assert found
    assert [one for one in found if not leads(*one)] == []
    others = re.findall(r"(?:runbook_url: |Documentation\s*=\s*\"?)(\S+)", text)
    assert others
    assert [one for one in others if not one.startswith(f"{DOCUMENTATION}/")] == []


def test_the_base_leads_to_the_copy_of_this_environment():
    base = documentation()
    assert base.startswith("file:///")
    assert Path(base.removeprefix("file://"), "index.md").exists()


def test_message_with_a_docs_page_gets_the_address_of_the_docs():
    assert docs_folder_note("give it READ: docs/operators/security.md") == f"docs/ is {documentation()}"
    assert docs_folder_note("all is well", "mydocs/x.md") is None
