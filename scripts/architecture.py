"""The map of the code, drawn from the code: the steps of a cycle, and every module with its first sentence.

python scripts/architecture.py          prints it as Markdown
"""

import ast
import html
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("hydrator", "adapters")
CYCLE = ("hydrator/reconcile/reconciler.py", "Reconciler", "run")
EVALUATE = ("hydrator/reconcile/evaluate.py", None, "evaluate")
_WIDTH, _ROW, _PAD = 760, 34, 12


@dataclass(frozen=True)
class Step:
    """One call of a flow: the function's *name* and the first sentence of its docstring."""

    name: str
    sentence: str


def first_sentence(docstring: str | None) -> str:
    """Return the first sentence of *docstring* on one line, empty where there is none."""
    text = " ".join((docstring or "").split("\n\n", maxsplit=1)[0].split())
    return text.split(". ")[0].rstrip(".") + "." if text else ""


def module_rows(package: str) -> Iterator[tuple[str, str]]:
    """Return each module of *package* (path, first sentence), in the order of the tree."""
    for path in sorted((ROOT / package).rglob("*.py")):
        sentence = first_sentence(ast.get_docstring(ast.parse(path.read_text("utf-8"))))
        yield str(path.relative_to(ROOT)), sentence


def flow_steps(path: str, class_name: str | None, function_name: str) -> list[Step]:
    """Return the documented functions that a function calls, in the order of its text, each once."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    body = _body_of(tree, class_name)
    function = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == function_name)
    documented = {**_imported_functions(tree), **_functions(tree.body), **_functions(body)}
    calls = sorted(
        (node for node in ast.walk(function) if isinstance(node, ast.Call)),
        key=lambda node: (node.lineno, node.col_offset),
    )
    names = dict.fromkeys(_called_name(call) for call in calls)
    return [Step(name, documented[name]) for name in names if documented.get(name)]


def cycle_picture() -> str:
    """Return the steps of a cycle as SVG: the reconciler's, and those of ``evaluate`` inside."""
    rows: list[tuple[int, Step]] = []
    for step in flow_steps(*CYCLE):
        rows.append((0, step))
        if step.name.lstrip("_").startswith("evaluate"):
            rows += [(1, inner) for inner in flow_steps(*EVALUATE)]
    height = _ROW * len(rows) + 2 * _PAD
    boxes = [_box(number, depth, step) for number, (depth, step) in enumerate(rows)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" role="img" '
        f'aria-label="The steps of one cycle" font-family="sans-serif" font-size="12">{"".join(boxes)}</svg>\n'
    )


def markdown() -> str:
    """Return the whole map as Markdown."""
    lines = ["# Map of the code", "", "## The steps of one cycle", ""]
    for step in flow_steps(*CYCLE):
        lines.append(f"1. `{step.name}`: {step.sentence}")
        if step.name.lstrip("_").startswith("evaluate"):
            lines += [f"   1. `{inner.name}`: {inner.sentence}" for inner in flow_steps(*EVALUATE)]
    for package in PACKAGES:
        lines += ["", f"## {package}", "", "| module | content |", "|---|---|"]
        lines += [f"| `{path}` | {sentence.replace('|', '')} |" for path, sentence in module_rows(package)]
    return "\n".join([*lines, ""])


def _body_of(tree: ast.Module, class_name: str | None) -> list[ast.stmt]:
    if class_name is None:
        return tree.body
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name).body


def _functions(body: list[ast.stmt]) -> dict[str, str]:
    return {
        node.name: first_sentence(ast.get_docstring(node))
        for node in body
        if isinstance(node, ast.FunctionDef)
    }


def _imported_functions(tree: ast.Module) -> dict[str, str]:
    """Return the functions that *tree* imports from this project, with their first sentences."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hydrator."):
            source = ROOT / (node.module.replace(".", "/") + ".py")
            if source.exists():
                there = _functions(ast.parse(source.read_text("utf-8")).body)
                found.update({alias.name: there[alias.name] for alias in node.names if alias.name in there})
    return found


def _called_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        is_own = isinstance(function.value, ast.Name) and function.value.id == "self"
        return function.attr if is_own else ""
    return function.id if isinstance(function, ast.Name) else ""


def _box(number: int, depth: int, step: Step) -> str:
    left, top = _PAD + 40 * depth, _PAD + number * _ROW
    text = html.escape(f"{step.name.lstrip('_').replace('_', ' ')}: {step.sentence}")
    return (
        f'<rect x="{left}" y="{top}" width="{_WIDTH - left - _PAD}" height="{_ROW - 8}" rx="4" fill="none" stroke="#57a"/>'
        f'<text x="{left + 8}" y="{top + 17}" fill="currentColor">{text}</text>'
    )


if __name__ == "__main__":
    sys.stdout.write(markdown())
