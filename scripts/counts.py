"""Count how readable the code is: the measures of HOUSE_STYLE.md, for this checkout or another one.

python scripts/counts.py [ROOT] [--names]      --names also lists what each count consists of
"""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("hydrator", "adapters", "toil_batch_system_classad_hydrator")
MODULE_LINES, FUNCTION_LINES, CLASS_METHODS, FOLDER_ENTRIES = 400, 40, 15, 13
_CLAUSE = re.compile(
    r"[`*]*(What|Whom|Whose|Who|Whether|Where|How|Why|That|Those|When|Which)\b", re.IGNORECASE
)
_PARTICIPLE = re.compile(
    r"(told|said|kept|held|found|left|taken|shown|seen|made|given|known|heard|sent|asked|got|gone|done|spent|lost|met"
    r"|bought|brought|caught|drawn|written|chosen|meant|paid|bound|grown|thrown|begun|spoken|stood|understood"
    r"|fallen|broken|hidden|won|lying|felt|thought|sought|laid|[a-z]{2,}ed)"
)
_VERBS_ON_ED = frozenset({"need", "feed", "seed", "speed", "exceed", "proceed", "embed", "shed"})
_NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


@dataclass(frozen=True)
class Count:
    """One measure: what is counted, the offenders by name, of how many, and the most that is allowed."""

    title: str
    offenders: tuple[str, ...]
    total: int
    limit: str


def count_tokens(root: Path) -> int:
    """Return the number of tokens of the product code below *root*, without comments and line ends."""
    return sum(
        token.type not in _NOT_CODE
        for path in _modules(root)
        for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
    )


def count_all(root: Path) -> list[Count]:
    """Return every measure of the product code below *root*."""
    trees = {str(path.relative_to(root)): ast.parse(path.read_text("utf-8")) for path in _modules(root)}
    functions = [(name, node) for name, tree in trees.items() for node in _functions(tree)]
    classes = [
        (name, node)
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    documented = [(name, node) for name, node in [*functions, *classes] if ast.get_docstring(node)]
    lines = {name: (root / name).read_text("utf-8").count("\n") for name in trees}
    folders = dict(_folder_entries(root))
    return [
        Count(
            f"modules over {MODULE_LINES} lines",
            tuple(f"{name} {size}" for name, size in lines.items() if size > MODULE_LINES),
            len(trees),
            "4",
        ),
        Count(
            f"functions over {FUNCTION_LINES} lines",
            tuple(
                f"{name} {node.name} {_size(node)}"
                for name, node in functions
                if _size(node) > FUNCTION_LINES
            ),
            len(functions),
            "8",
        ),
        Count(
            f"classes over {CLASS_METHODS} methods",
            tuple(
                f"{name} {node.name} {_methods(node)}"
                for name, node in classes
                if _methods(node) > CLASS_METHODS
            ),
            len(classes),
            "2",
        ),
        Count(
            "functions named by a participle",
            tuple(f"{name} {node.name}" for name, node in functions if _is_participle(node.name)),
            len(functions),
            "2 %",
        ),
        Count(
            "docstrings that open with a clause",
            tuple(
                f"{name} {node.name}"
                for name, node in documented
                if _CLAUSE.match(ast.get_docstring(node) or "")
            ),
            len(documented),
            "1 %",
        ),
        Count("class names of two classes", _class_names_used_twice(trees), len(classes), "5"),
        Count(
            f"folders with more than {FOLDER_ENTRIES} entries",
            tuple(f"{folder} {entries}" for folder, entries in folders.items() if entries > FOLDER_ENTRIES),
            len(folders),
            "1",  # hydrator itself, with one package for each flow
        ),
    ]


def _modules(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.py"))


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _size(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _methods(node: ast.ClassDef) -> int:
    return sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)


def _is_participle(name: str) -> bool:
    if name.startswith("__"):
        return False
    word = name.strip("_").split("_", maxsplit=1)[0].lower()
    return bool(_PARTICIPLE.fullmatch(word)) and word not in _VERBS_ON_ED


def _class_names_used_twice(trees: dict[str, ast.Module]) -> tuple[str, ...]:
    places = defaultdict(set)
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name.strip("_")].add(name)
    return tuple(
        f"{name}: {', '.join(sorted(where))}" for name, where in sorted(places.items()) if len(where) > 1
    )


def _folder_entries(root: Path) -> Iterator[tuple[str, int]]:
    """Yield each folder of the product code, and how many modules and folders it has."""
    for top in FOLDERS:
        for folder in [root / top, *(each for each in (root / top).rglob("*") if each.is_dir())]:
            if folder.is_dir() and folder.name != "__pycache__":
                entries = [each for each in folder.iterdir() if _is_entry(each)]
                yield str(folder.relative_to(root)), len(entries)


def _is_entry(path: Path) -> bool:
    if path.is_dir():
        return any(path.rglob("*.py")) or (path.name != "__pycache__" and any(path.iterdir()))
    return path.name not in {"__init__.py", "py.typed"}


def main() -> None:
    """Print the counts, one a line."""
    words = [word for word in sys.argv[1:] if word != "--names"]
    root = Path(words[0]) if words else Path(__file__).parents[1]
    print(f"{count_tokens(root):8,} tokens")
    for count in count_all(root):
        share = f" = {len(count.offenders) / count.total:.1%}" if "%" in count.limit and count.total else ""
        print(f"{len(count.offenders):8,} of {count.total:,}{share}  {count.title} (at most {count.limit})")
        if "--names" in sys.argv:
            print(*(f"{'':12}{each}" for each in count.offenders), sep="\n")


if __name__ == "__main__":
    main()
