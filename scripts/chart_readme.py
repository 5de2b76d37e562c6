"""Write the table of values in the chart's README.md from values.yaml: ``python scripts/chart_readme.py``.

values.yaml has the form for this. A ``# --`` comment describes the key below it, which
has its default value on the same line, or a mapping on the next lines, indented,
with one value a line. A key without such a comment is the parent of others.
"""

import re
import sys
from pathlib import Path

CHART = Path(__file__).parents[1] / "deploy" / "helm" / "classad-hydrator"
BEGIN, END = "<!-- values: scripts/chart_readme.py -->\n", "<!-- end of values -->\n"
_LINE = re.compile(r"( *)([A-Za-z]+):(?: +(.*))?$")


def rows(text: str) -> list[tuple[str, str, str]]:
    """Return path, default and description of each described value in *text*, in order."""
    found: list[tuple[str, str, str]] = []
    parents: list[str] = []
    description, inside = "", -1
    for line in text.splitlines():
        if match := re.match(r" *# -- (.*)", line):
            description = match[1]
            continue
        if not (match := _LINE.match(line)):
            continue
        depth, key, value = len(match[1]) // 2, match[2], match[3] or ""
        if 0 <= inside < depth:  # a mapping over several lines is one value
            path, before, about = found[-1]
            found[-1] = (path, f"{before}{', ' if before else ''}{key}: {value}", about)
            continue
        inside = -1
        parents[depth:] = [key]
        if description:
            found.append((".".join(parents), value, description))
            description, inside = "", -1 if value else depth
    return [(path, f"{{{value}}}" if ": " in value and value[0] not in "{[" else value, about)
            for path, value, about in found]  # fmt: skip


def table(text: str) -> str:
    """Return the rows of *text* as a Markdown table."""
    head = "| value | default | what it is |\n|---|---|---|\n"
    return head + "".join(
        f"| `{path}` | `{value}` | {about} |\n".replace('`""`', "") for path, value, about in rows(text)
    )


def page(readme: str, values: str) -> str:
    """Return *readme* with the table of *values* between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(values)}\n{END}{after}"


def main() -> int:
    """Write the page, or with ``--check`` return 1 if it is outdated."""
    readme = CHART / "README.md"
    fresh = page(readme.read_text("utf-8"), (CHART / "values.yaml").read_text("utf-8"))
    if "--check" in sys.argv[1:]:
        return int(readme.read_text("utf-8") != fresh)
    readme.write_text(fresh, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
