"""Picture of the demo for the README: its output in a terminal, as an SVG.

python -m testbed.demo_recording [docs/pictures/demo.svg]
"""

import io
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
COLUMNS = 120
"""As many as the demo uses where its output is not a terminal."""
CELL = 12.2
"""Width of a character in rich's picture."""


def build_svg(output: str) -> str:
    """Return the picture of *output*, which may have styles of a terminal."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(output))
    svg = console.export_svg(title="make demo", unique_id="demo")
    return re.sub(r"@font-face {.*?}", "", svg, flags=re.DOTALL)  # the reader's own font, none of a server


def read_recording(picture: Path = PICTURE) -> list[str]:
    """Return the lines of text of *picture*, as the demo printed them."""
    lines: dict[int, str] = defaultdict(str)
    for text in ET.fromstring(picture.read_text("utf-8")).iter("{http://www.w3.org/2000/svg}text"):
        if line := re.search(r"line-(\d+)\)", text.get("clip-path", "")):
            before = lines[int(line[1])].ljust(round(float(text.get("x", 0)) / CELL))  # blanks are left out
            lines[int(line[1])] = before + "".join(text.itertext()).replace("\xa0", " ").rstrip("\n")
    return [lines[number].rstrip() for number in range(max(lines) + 1)]


def main() -> None:
    """Run the demo and write the picture."""
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    styled = {**os.environ, "FORCE_COLOR": "1"}
    command = [sys.executable, "-m", "testbed.demo"]
    done = subprocess.run(command, env=styled, stdout=subprocess.PIPE, text=True, check=True)
    picture.write_text(build_svg(f"$ make demo\n{done.stdout}"), "utf-8")


if __name__ == "__main__":
    main()
