"""Casacore tables for tests: the files of a small measurement set, as casacore 3.8 begins them."""

import re
from collections.abc import Mapping
from pathlib import Path


def table(
    rows: int | None, manager: str = "StandardStMan", version: int = 2, subtables: tuple[str, ...] = ()
) -> bytes:
    """A table.dat; with None another text."""
    if rows is None:
        return b"text"
    count = rows.to_bytes(8 if version == 3 else 4, "big")
    names = b"".join(b"\0\0\0\x0b././" + name.encode() for name in subtables)
    begin = b"\0\0\0\x05Table" + version.to_bytes(4, "big") + count + b"\0\0\0\1\0\0\0\x0aPlainTable"
    rest = begin + names + b"\0\0\0\x0d" + manager.encode()
    return b"\xbe\xbe\xbe\xbe" + (len(rest) + 4).to_bytes(4, "big") + rest


MEASUREMENT_SET = {
    "table.dat": table(5, subtables=("ANTENNA", "SORTED_TABLE")),
    "table.f0": b"x",
    "ANTENNA/table.dat": table(9),
    "ANTENNA/table.f0": b"x",
}


def below(folder: str, without: str = "$") -> dict[str, bytes]:
    """The files of a measurement set below *folder*; not those whose names match *without*."""
    return {
        f"{folder}/{name}": content
        for name, content in MEASUREMENT_SET.items()
        if not re.match(without, name)
    }


def write(folder: Path, files: Mapping[str, bytes | None] = MEASUREMENT_SET) -> Path:
    """Write *files* and folders (None) into *folder*."""
    for name, content in files.items():
        path = folder / name
        (path if content is None else path.parent).mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_bytes(content)
    return folder
