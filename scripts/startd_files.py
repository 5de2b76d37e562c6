"""Write into the startd configuration in deploy/ what pool-config prints: ``python scripts/startd_files.py``.

These files have settings of their own, and between two marks a part of the text of
``hydrator submit pool-config --role startd``. ``--check`` only compares.
"""

import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from hydrator.submit.pool_config import START_CLAUSE, startd_attributes

DEPLOY = Path(__file__).parents[1] / "deploy"
BEGIN = "# --- begin: written by scripts/startd_files.py from `hydrator submit pool-config --role startd`\n"
END = "# --- end\n"
_START = (
    "# Do not start a later job at a site that no longer has its data. Use this line only with the hook.\n"
    f"START = ($(START)) && {START_CLAUSE}\n"
)
FILES: Mapping[str, bool] = {
    "packages/60-datalocality-startd.conf": True,
    "ospool/60-locality.config": True,
    "glideinwms/locality_clauses.condor": False,
}
"""Files below deploy/ with such a part; True if START is in it: GlideinWMS has START in start_expr."""


def fill(text: str, *, has_start: bool) -> str:
    """Return *text* with the part of pool-config between its marks, indented as the first mark is."""
    before, mark, rest = text.partition(BEGIN)
    _, closing, after = rest.partition(END)
    if not mark or not closing:
        raise ValueError(f"the file has no line {(END if mark else BEGIN).strip()!r}")
    indent = before[before.rfind("\n") + 1 :]
    part = (_START if has_start else "") + startd_attributes()
    return f"{before}{mark}{textwrap.indent(part, indent)}{indent}{closing}{after}"


def outdated() -> dict[Path, str]:
    """Return each file that differs from pool-config, and its text as it should be."""
    wanted = {
        DEPLOY / name: fill((DEPLOY / name).read_text("utf-8"), has_start=has_start)
        for name, has_start in FILES.items()
    }
    return {path: text for path, text in wanted.items() if path.read_text("utf-8") != text}


def main() -> int:
    """Write the files, or with ``--check`` return 1 if one is outdated."""
    found = outdated()
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{path} is outdated: run scripts/startd_files.py" for path in found), end="")
        return 1 if found else 0
    for path, text in found.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
