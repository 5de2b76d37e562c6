"""A storage site without slots, and the operator's command that stages data from it.

    python -I archive.py FOLDER < one JSON object of the command stager

The command writes each request of the daemon into FOLDER/requests. :class:`Mover`, in the process of the
experiment, moves one dataset after the other over the archive's throttled link to the site that the daemon
chose, and updates the file catalogue. The command uses the standard library only.
"""

import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

ENOUGH_BYTES = 10**15
"""Free space of each site."""
POLL_SECONDS = 0.2

Given = dict[str, Any]


def ask(folder: Path, given: Given) -> Iterator[Given]:
    """Store each order in a file of its own; the same order twice is one request."""
    for order in given["orders"]:
        name = hashlib.sha256(order["tag"].encode()).hexdigest()[:16]
        fresh = folder / f"{name}.new"
        fresh.write_text(json.dumps({key: order[key] for key in ("tag", "kind", "site", "did")}))
        fresh.rename(folder / f"{name}.json")
        yield {"tag": order["tag"], "handle": name}


def look(folder: Path, given: Given) -> Iterator[Given]:
    """Yield the requests with one of the given tags, or with the given prefix."""
    for file in folder.glob("*.json"):
        request = json.loads(file.read_text())
        if request["tag"] in given["tags"] or request["tag"].startswith(given["prefix"]):
            state = "done" if file.with_suffix(".done").exists() else "moving"
            yield {**request, "handle": file.stem, "state": state}


def measure(folder: Path, given: Given) -> Iterator[Given]:
    """Yield the sizes of the datasets in the archive."""
    sizes = json.loads((folder / "sizes").read_text())
    return ({"did": did, "bytes": sizes[did], "files": 1} for did in given["dids"] if did in sizes)


def space(_folder: Path, given: Given) -> Iterator[Given]:
    """Yield the free space of the sites."""
    return (
        {"site": each, "free_bytes": ENOUGH_BYTES, "total_bytes": ENOUGH_BYTES} for each in given["sites"]
    )


def check(_folder: Path, _given: Given) -> Iterator[Given]:
    """Yield the permissions: all."""
    yield {"can_ask": True, "can_renew": True, "can_cancel": True, "notes": []}


def keep(_folder: Path, _given: Given) -> Iterator[Given]:
    """Yield nothing: staged data stays until the end of the run."""
    return iter(())


ACTIONS: dict[str, Callable[[Path, Given], Iterator[Given]]] = {
    "ask": ask,
    "look": look,
    "measure": measure,
    "space": space,
    "check": check,
    "renew": keep,
    "cancel": keep,
}
NOT_SUPPORTED = 4


class Mover:
    """A thread that moves the requested datasets, the first request first; ``staged`` has what was moved.

    Args:
        folder: the command's folder.
        sizes: the bytes of each dataset in the archive.
        move: reads the dataset over the link and stores it at the site.
        update: writes the catalogue: by dataset, the site that it is on its way to or complete at.
    """

    def __init__(
        self,
        folder: Path,
        sizes: dict[str, int],
        move: Callable[[str, str], None],
        update: Callable[[dict[str, tuple[str, str]]], None],
    ) -> None:
        self.staged: dict[str, str] = {}
        self._folder, self._move, self._update = folder, move, update
        self._states: dict[str, tuple[str, str]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        folder.mkdir()
        (folder / "sizes").write_text(json.dumps(sizes))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
            requests = {file: json.loads(file.read_text()) for file in files}
            new = {each["did"]: (each["site"], "staging") for each in requests.values()}
            if new.keys() - self._states.keys():
                self._states = new | self._states
                self._update(self._states)
            waiting = (file for file in files if not file.with_suffix(".done").exists())
            if (file := next(waiting, None)) is not None:
                did, site = requests[file]["did"], requests[file]["site"]
                self._move(did, site)
                self.staged[did] = site
                self._states[did] = (site, "available")
                self._update(self._states)
                file.with_suffix(".done").touch()


def main(folder: Path) -> int:
    """Run one action of the command stager."""
    given = json.load(sys.stdin)
    action = ACTIONS.get(given["action"])
    if action is None:
        return NOT_SUPPORTED
    for line in action(folder, given):
        print(json.dumps(line))
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
