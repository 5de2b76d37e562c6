"""Map of the code, drawn from the code: the steps of a cycle, and the first sentence of every module.

python scripts/architecture.py          prints it as Markdown

``make docs`` builds the same as a page with a picture (``scripts/docs.py``). If the code no longer has a
function that the picture starts from, :class:`NameGoneError` says which.
"""

import ast
import html
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("hydrator", "adapters")
PICTURE = "cycle.svg"
_ADVICE = "correct ROOTS or CORE in scripts/architecture.py"
_WIDTH, _LINE, _PAD, _INDENT, _LETTERS = 820, 16, 12, 28, 112


class NameGoneError(Exception):
    """A function that the picture starts from, and that the code does not have."""


@dataclass(frozen=True)
class Function:
    """A function of the project by its file, and by its class if it is a method."""

    path: str
    class_name: str | None
    name: str


RECONCILER = "hydrator/reconcile/reconciler.py"
ROOTS = (Function(RECONCILER, "Reconciler", "refresh_demand"), Function(RECONCILER, "Reconciler", "run"))
"""The two methods of a cycle, in the order in which the daemon calls them."""
CORE = Function("hydrator/reconcile/evaluate.py", None, "evaluate")
"""The pure function in the middle. Its steps are drawn, and those of each function that leads to it."""


@dataclass(frozen=True)
class Step:
    """One call of a cycle: its *function*, the first *sentence* of its docstring, and the steps *inside*."""

    function: Function
    sentence: str
    inside: tuple["Step", ...] = ()


def first_sentence(docstring: str | None) -> str:
    """Return the first sentence of *docstring* on one line, empty where there is none."""
    text = " ".join((docstring or "").split("\n\n", maxsplit=1)[0].split())
    text = re.sub(r"(?::\w+:`|``)([^`]+)``?", r"`\1`", text)
    return text.split(". ")[0].rstrip(".:") + "." if text else ""


def cycle_steps(roots: Sequence[Function] = ROOTS, core: Function = CORE) -> list[Step]:
    """Return the steps of a cycle, in the order in which they run.

    Raises:
        NameGoneError: a root or the core is gone, or the last root does not lead to the core any more.
    """
    _definition(core)
    steps = [
        Step(root, first_sentence(ast.get_docstring(_definition(root))), _steps(root, core, (root,)))
        for root in roots
    ]
    if not _leads_to(core, roots[-1]):
        raise NameGoneError(f"{_text(roots[-1])} does not call {_text(core)} any more: {_ADVICE}")
    return steps


def cycle_picture() -> str:
    """Return the steps of a cycle as SVG: a box for each, those inside another step indented below it."""
    parts, top = [], _PAD
    for depth, step in _with_depth(cycle_steps()):
        box, height = _box(depth, top, step)
        parts.append(box)
        top += height + 6
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top + _PAD}" role="img" '
        'aria-label="The steps of one cycle" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def markdown(*, picture: str = "") -> str:
    """Return the whole map as Markdown; *picture* is the path of the SVG, where there is one."""
    lines = [
        "# Map of the code\n",
        "*Made from the code by `scripts/architecture.py`.* Each sentence is the first one of a docstring.\n",
        "## The steps of one cycle\n",
        "From top to bottom. An indented step is a part of the step above it.\n",
    ]
    lines += [f"![The steps of one cycle]({picture})\n"] if picture else []
    lines += [
        f"{'   ' * depth}1. `{step.function.name}` ({step.function.path}): {step.sentence}"
        for depth, step in _with_depth(cycle_steps())
    ]
    lines += ["\n## Folders\n", "| folder | content |", "|---|---|"]
    lines += [f"| `{folder}` | {sentence} |" for folder, sentence in folder_rows()]
    for folder, _ in folder_rows():
        if rows := list(module_rows(folder)):
            lines += [f"\n## {folder}\n", "| module | content |", "|---|---|"]
            lines += [f"| `{name}` | {sentence} |" for name, sentence in rows]
    return "\n".join([*lines, ""])


def folder_rows() -> list[tuple[str, str]]:
    """Return each folder of the packages with the first sentence of its ``__init__.py``."""
    folders = [file.parent for package in PACKAGES for file in sorted((ROOT / package).rglob("__init__.py"))]
    return [(str(folder.relative_to(ROOT)), _module_sentence(folder / "__init__.py")) for folder in folders]


def module_rows(folder: str) -> Iterator[tuple[str, str]]:
    """Return each module in *folder*, not below it, with the first sentence of its docstring."""
    for path in sorted((ROOT / folder).glob("*.py")):
        if path.name != "__init__.py":
            yield path.name, _module_sentence(path)


def _module_sentence(path: Path) -> str:
    return first_sentence(ast.get_docstring(ast.parse(path.read_text("utf-8")))).replace("|", "\\|")


@cache
def _tree(path: str) -> ast.Module:
    file = ROOT / path
    if not file.is_file():
        raise NameGoneError(f"{path} does not exist any more: {_ADVICE}")
    return ast.parse(file.read_text("utf-8"))


def _definition(function: Function) -> ast.FunctionDef:
    body = _body(_tree(function.path), function.class_name)
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == function.name:
            return node
    raise NameGoneError(f"{_text(function)} does not exist any more: {_ADVICE}")


def _text(function: Function) -> str:
    owner = f"{function.class_name}." if function.class_name else ""
    return f"{owner}{function.name} in {function.path}"


def _body(tree: ast.Module, class_name: str | None) -> list[ast.stmt]:
    if class_name is None:
        return tree.body
    return [
        stmt
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == class_name
        for stmt in node.body
    ]


def _steps(function: Function, core: Function, callers: tuple[Function, ...]) -> tuple[Step, ...]:
    """Return the documented functions that *function* calls; one without a docstring gives its own steps."""
    steps: dict[Function, Step] = {}
    for called in _called(function):
        if called in callers or called in steps:
            continue
        sentence = first_sentence(ast.get_docstring(_definition(called)))
        is_open = not sentence or _leads_to(core, called)
        inside = _steps(called, core, (*callers, called)) if is_open else ()
        steps.update(
            {called: Step(called, sentence, inside)} if sentence else {s.function: s for s in inside}
        )
    return tuple(steps.values())


def _leads_to(core: Function, function: Function, callers: tuple[Function, ...] = ()) -> bool:
    """Return True if *function* is the *core*, or calls it through functions of the reconciler's file."""
    return function == core or (
        function.path == RECONCILER
        and any(
            _leads_to(core, called, (*callers, function))
            for called in _called(function)
            if called not in callers
        )
    )


@cache
def _called(function: Function) -> list[Function]:
    """Return the project's functions that *function* calls, in the order in which the calls end."""
    tree = _tree(function.path)
    calls = [node for node in ast.walk(_definition(function)) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0))
    return [found for call in calls if (found := _resolve(call.func, function, tree))]


def _resolve(expression: ast.expr, caller: Function, tree: ast.Module) -> Function | None:
    """Return the function that *expression* names: ``f``, ``self.f`` or ``self.part.f``."""
    if isinstance(expression, ast.Name):
        return _named(expression.id, caller.path, tree)
    if not isinstance(expression, ast.Attribute):
        return None
    owner = ast.unparse(expression.value)
    if owner == "self":
        return _method(caller.path, caller.class_name, expression.attr)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == owner:
            class_name = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
            return _method(_imports(tree).get(class_name, caller.path), class_name, expression.attr)
    return None


def _named(name: str, path: str, tree: ast.Module) -> Function | None:
    return _method(_imports(tree).get(name, path), None, name)


def _method(path: str, class_name: str | None, name: str) -> Function | None:
    names = {node.name for node in _body(_tree(path), class_name) if isinstance(node, ast.FunctionDef)}
    return Function(path, class_name, name) if name in names else None


def _imports(tree: ast.Module) -> dict[str, str]:
    """Return, by name that *tree* imports from a module of ``hydrator``, the path of that module."""
    return {
        alias.name: path
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for path in [node.module.replace(".", "/") + ".py"]
        if (ROOT / path).is_file()
        for alias in node.names
    }


def _with_depth(steps: Sequence[Step], depth: int = 0) -> Iterator[tuple[int, Step]]:
    for step in steps:
        yield depth, step
        yield from _with_depth(step.inside, depth + 1)


def _box(depth: int, top: int, step: Step) -> tuple[str, int]:
    """Return the box of *step*, with its name and its sentence, and the height of the box."""
    left = _PAD + _INDENT * depth
    lines = textwrap.wrap(re.sub("[`*]", "", step.sentence), _LETTERS - 5 * depth)
    height = _LINE * (1 + len(lines)) + 10
    name = step.function.name.lstrip("_").replace("_", " ")
    text = "".join(f'<tspan x="{left + 10}" dy="{_LINE}">{html.escape(line)}</tspan>' for line in lines)
    fill = "#e8f0f8" if step.inside else "#fff"
    return (
        f'<rect x="{left}" y="{top}" width="{_WIDTH - left - _PAD}" height="{height}" rx="4" fill="{fill}"'
        f' stroke="#57a"/><text x="{left + 10}" y="{top + _LINE + 2}" fill="#123">'
        f'<tspan font-weight="bold">{html.escape(name)}</tspan>'
        f'<tspan fill="#678">  {html.escape(step.function.path)}</tspan>{text}</text>'
    ), height


if __name__ == "__main__":
    sys.stdout.write(markdown())
