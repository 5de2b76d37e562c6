"""A Probe that runs a command of the operator's: it looks at the storage itself.

The command is a list of words, run without a shell; ``{did}``, ``{site}`` and
``{path}`` in a word stand for what they name. It says by its exit status what
it saw: 0, the dataset is there; 1, it is not; anything else, and taking too
long, that it could not tell.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase

from hydrator.domain.model import Did, Site, is_unsafe_argument

EXIT_PRESENT, EXIT_ABSENT = 0, 1
PathLookup = Callable[[Site, Did], str | None]


@dataclass(frozen=True, slots=True)
class ProbeCommand:
    """One command, and the storage it can look at: sites and catalogues by pattern (``*``, ``?``)."""

    command: tuple[str, ...]
    sites: tuple[str, ...] = ("*",)
    catalogues: tuple[str, ...] = ("*",)
    timeout: timedelta = timedelta(seconds=30)


class CommandProbe:
    """Runs the first of *probes* that looks at a site; *path_at* says where its jobs find a dataset."""

    def __init__(self, probes: Sequence[ProbeCommand], path_at: PathLookup) -> None:
        self._probes = tuple(probes)
        self._path_at = path_at

    def can_check(self, catalogue: str, site: Site) -> bool:
        """See :class:`hydrator.domain.ports.Probe`."""
        return self._find_probe(catalogue, site) is not None

    def check_dataset(self, catalogue: str, did: Did, site: Site) -> bool | None:
        """See :class:`hydrator.domain.ports.Probe`.

        None also where the command needs a path and there is none, and for a DID that would be an option
        of the command, or lead to the folder above.
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
            its_site = any(fnmatchcase(site, pattern) for pattern in probe.sites)
            if its_site and any(fnmatchcase(catalogue, pattern) for pattern in probe.catalogues):
                return probe
        return None


def _fill_placeholders(word: str, did: Did, site: Site, path: str) -> str:
    """*word* with what its placeholders name; what they bring along is not looked at again."""
    values = {"{did}": str(did), "{site}": str(site), "{path}": path}
    text, rest = "", word
    while rest:
        key = next((key for key in values if rest.startswith(key)), None)
        text += values[key] if key else rest[0]
        rest = rest[len(key) if key else 1 :]
    return text


def _run(words: Sequence[str], timeout: timedelta) -> int | None:
    """The exit status; None when it could not be started, or took too long: then all its group is ended."""
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
