"""Count a checkout: python3 scripts/count.py [NAME<=LIMIT ...]    (in its root; no dependency).

Code lines are lines with code: not blank, not a comment, not a docstring.
Without limits it prints the code lines of each part, the words of each page of docs/, and the sums.
With limits (such as code<=42000) it prints what is over, and exits 1 if anything is.
"""

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

SKIPPED_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
NOT_PRODUCT = {"tests", "testbed", "benchmarks", "scripts", "docs"}
PROBE = r"""
import json, dataclasses, importlib, inspect, pkgutil, typer
from typer.main import get_command
import hydrator.cli as c, hydrator.config as cfg
from pydantic import BaseModel
app = None
for m in pkgutil.walk_packages(c.__path__, "hydrator.cli."):
    try: mod = importlib.import_module(m.name)
    except Exception: continue
    a = getattr(mod, "app", None)
    if not isinstance(a, typer.Typer): continue
    size = len(a.registered_commands) + len(a.registered_groups)
    if app is None or size > len(app.registered_commands) + len(app.registered_groups): app = a
n = o = 0
def walk(x):
    global n, o
    subs = getattr(x, "commands", None)
    if subs:
        for s in subs.values(): walk(s)
    else: n += 1; o += sum(p.param_type_name == "option" and p.name != "help" for p in x.params)
walk(get_command(app))
seen, s = set(), 0
for m in [cfg] + [importlib.import_module(i.name) for i in pkgutil.walk_packages(cfg.__path__, "hydrator.config.")]:
    for k in vars(m).values():
        if inspect.isclass(k) and k.__module__.startswith("hydrator.config") and k not in seen:
            if issubclass(k, BaseModel): f = [x for x in k.model_fields if x in k.__annotations__]
            elif dataclasses.is_dataclass(k): f = dataclasses.fields(k)
            else: continue
            seen.add(k); s += len(f)
print(json.dumps({"commands": n, "options": o, "config_fields": s}))
"""  # noqa: E501
"""A program that counts commands, options and fields of the settings, run by the project's own Python."""


def count_code_lines(path: Path) -> int:
    """Return the number of lines of *path* that are not blank, comment or docstring."""
    text = path.read_text("utf-8", errors="replace")
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return len(text.splitlines())
    texts: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for item in body if isinstance(body, list) else ():  # docstrings, also those below an assignment
            value = item.value if isinstance(item, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                texts.update(range(item.lineno, (item.end_lineno or item.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED_TOKENS:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - texts)


def name_part(path: Path) -> str:
    """Return the folder of *path* in whose sum it counts."""
    if path.parts[0] not in {"hydrator", "adapters"}:
        return path.parts[0]
    if len(path.parts) > 2:
        return "/".join(path.parts[:2])
    return str(path) if path.name == "startd_cron.py" else path.parts[0]


def count(tracked: list[Path]) -> tuple[Counter[str], dict[str, int]]:
    """Return the code lines of each part of the product, and the figures of the checkout."""
    by_part: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for path in tracked:
        if path.suffix != ".py":
            continue
        code_lines = count_code_lines(path)
        kind = path.parts[0] if path.parts[0] in NOT_PRODUCT else "product"
        total[kind] += code_lines
        total[f"{kind}_all"] += len(path.read_bytes().splitlines())
        total[f"{kind}_files"] += 1
        if kind == "product":
            by_part[name_part(path)] += code_lines
    tests_code = total["tests"] + total["testbed"]
    pages = count_words(tracked)
    figures = {
        "code": total["product"],
        "lines": total["product_all"],
        "modules": total["product_files"],
        "tests_code": tests_code,
        "tests_lines": total["tests_all"] + total["testbed_all"],
        "tests_per_100": round(100 * tests_code / max(1, total["product"])),
        "docs_words": sum(pages.values()),
        "docs_pages": len(pages),
        "readme_words": len(Path("README.md").read_text("utf-8").split()),
        "config_lines": len(Path("config.example.toml").read_text("utf-8").splitlines()),
    }
    return by_part, figures | count_interfaces()


def count_words(tracked: list[Path]) -> dict[str, int]:
    """Return the words of each page of docs/, by its path."""
    pages = [path for path in tracked if path.suffix == ".md" and path.parts[0] == "docs"]
    return {str(page): len(page.read_text(errors="replace").split()) for page in pages}


def count_interfaces() -> dict[str, int]:
    """Return the numbers of commands, options and fields of the settings; none without .venv."""
    python = Path(".venv/bin/python")
    if not python.exists():
        return {}
    done = subprocess.run([str(python), "-c", PROBE], capture_output=True, text=True, check=False)
    return dict(json.loads(done.stdout.strip().splitlines()[-1])) if done.returncode == 0 else {}


def main(limits: dict[str, int]) -> bool:
    """Print the figures; return True if a figure is over its limit, or not known."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout
    tracked = [path for path in map(Path, listed.splitlines()) if path.is_file()]
    by_part, figures = count(tracked)
    over = [
        f"{name} {figures.get(name)} (goal {limit})"
        for name, limit in limits.items()
        if name not in figures or figures[name] > limit
    ]
    for part, number in (*by_part.most_common(), *count_words(tracked).items()) if not limits else ():
        print(f"{number:7,}  {part}")
    shown = (f"{name} {figure:,}" for name, figure in figures.items() if not limits or name in limits)
    print("over: " + "; ".join(over) if over else "; ".join(shown))
    return bool(over)


if __name__ == "__main__":
    pairs = (word.partition("<=") for word in sys.argv[1:])
    sys.exit(main({name: int(limit) for name, _, limit in pairs}))
