"""Command probe: run the operator's command, which looks for a dataset in the storage itself.

The command is a list of words, run without a shell. ``{did}``, ``{site}`` and ``{path}`` in a word are
placeholders. Exit status 0 means that the dataset is in the storage, 1 that the dataset is absent. After
any other status or a timeout the result is unknown.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase

from hydrator.domain.model import Did, Site
from hydrator.domain.untrusted import is_unsafe_argument

EXIT_PRESENT, EXIT_ABSENT = 0, 1
PathLookup = Callable[[Site, Did], str | None]


@dataclass(frozen=True, slots=True)
class ProbeCommand:
    """An operator's command, for the sites and catalogues whose names match its patterns (``*``, ``?``)."""

    command: tuple[str, ...]
    sites: tuple[str, ...] = ("*",)
    catalogues: tuple[str, ...] = ("*",)
    timeout: timedelta = timedelta(seconds=30)


class CommandProbe:
    """A Probe that runs the first of *probes* that matches the catalogue and the site.

    *path_at* returns the path that jobs at the site use for a dataset.
    """

    def __init__(self, probes: Sequence[ProbeCommand], path_at: PathLookup) -> None:
        self._probes = tuple(probes)
        self._path_at = path_at

    def can_check(self, catalogue: str, site: Site) -> bool:
        """Return whether one of the commands can check *site*; see :class:`hydrator.domain.ports.Probe`."""
        return self._find_probe(catalogue, site) is not None

    def check_dataset(self, catalogue: str, did: Did, site: Site) -> bool | None:
        """Run the command for *did*; see :class:`hydrator.domain.ports.Probe`.

        Return None, without a run, if the command needs ``{path}`` and the path is unknown. Do the same if
        the DID is unsafe: the command could read it as an option (``-``) or as a parent folder (``..``).
        """
        if is_unsafe_argument(did):
            return None
        probe = self._find_probe(catalogue, site)
        path = self._path_at(site, did)
        if probe is None or (path is None and any("{path}" in word for word in probe.command)):
            return None
        words = [_fill_placeholders(word, did, site, path or "") for word in probe.command]
        status = _run(words, probe.timeout)
        return status == EXIT_PRESENT if status in {EXIT_PRESENT, EXIT_ABSENT} else None

    def _find_probe(self, catalogue: str, site: Site) -> ProbeCommand | None:
        for probe in self._probes:
            is_for_site = any(fnmatchcase(site, pattern) for pattern in probe.sites)
            if is_for_site and any(fnmatchcase(catalogue, pattern) for pattern in probe.catalogues):
                return probe
        return None


def _fill_placeholders(word: str, did: Did, site: Site, path: str) -> str:
    """Return *word* with its placeholders replaced; do not replace a placeholder inside an inserted value."""
    values = {"{did}": str(did), "{site}": str(site), "{path}": path}
    text, rest = "", word
    while rest:
        key = next((key for key in values if rest.startswith(key)), None)
        text += values[key] if key else rest[0]
        rest = rest[len(key) if key else 1 :]
    return text


def _run(words: Sequence[str], timeout: timedelta) -> int | None:
    """Run the command *words*; return its exit status, or None if it does not start or takes too long.

    After *timeout*, kill the command's process group.
    """
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError):
        return None
    try:
        return process.wait(timeout.total_seconds())
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None
