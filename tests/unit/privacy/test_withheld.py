"""Redaction of catalogues' reasons: the sentences that may be shown are those that the code writes."""

import ast
from functools import cache
from pathlib import Path

import pytest

from hydrator.privacy import withheld

ROOT = Path(__file__).parents[3]


@cache
def sentences() -> frozenset[str]:
    """Return all texts of the code, with ``{}`` for each inserted value."""
    modules = {*ROOT.glob("adapters/**/*.py"), *ROOT.glob("hydrator/**/*.py")} - {Path(withheld.__file__)}
    trees = [ast.parse(module.read_text("utf-8")) for module in modules]
    return frozenset(
        _text(node)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.JoinedStr)
    )


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


@pytest.mark.parametrize("sentence", withheld._SAFE_SENTENCES)
def test_each_sentence_that_may_be_shown_is_one_of_the_code(sentence):
    begin = sentence.replace("{storage}", "{}")
    assert any(each.startswith(begin) for each in sentences()), (
        "the code no longer writes this sentence: change it in hydrator/privacy/withheld.py too"
    )
