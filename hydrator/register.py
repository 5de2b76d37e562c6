"""Which dataset an opaque name stands for: what was exchanged, kept in a file that only the daemon reads.

The file lists plain DIDs, one a line; names are computed from the keys, so a
lost file loses nothing but time: what the catalogues list is found again.
"""

import os
import stat
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .errors import BadDid, ConfigError
from .model import Did, parse_did
from .private import LEAST_KEY_BYTES, Veil

FILE_NAME = "private-datasets"
MOST_KEPT = 200_000
"""Lines of the file; what is exchanged beyond that is found in the catalogues after a restart."""


class Register:
    """Maps opaque names to DIDs; safe to use from several threads.

    Args:
        veil: what is private, and the keys.
        file: where exchanged DIDs are kept; None keeps them in memory only.
    """

    def __init__(self, veil: Veil, file: Path | None = None) -> None:
        self.veil = veil
        self._file = file
        self._lock = threading.Lock()
        self._plain: dict[Did, Did] = {}
        self._kept: set[Did] = set()
        self.trouble: str | None = None
        if file:
            self._load(file)

    def plain(self, name: Did) -> Did | None:
        """The DID that *name* stands for, None where that is not known."""
        with self._lock:
            return self._plain.get(name)

    def learn(self, dids: Iterable[Did]) -> None:
        """Know the names of those of *dids* that are private, until the process ends."""
        with self._lock:
            self._learn(dids)

    def learn_from(self, other: "Register") -> None:
        """Know what *other*, of the configuration before a reload, was asked for meanwhile."""
        with other._lock:
            dids = set(other._plain.values())
        self.learn(dids)

    def exchange(self, dids: Iterable[Did]) -> Mapping[Did, Did]:
        """By DID, the name to use in the pool; private ones are kept, so that a restart knows them.

        A file that cannot be written loses none of the answers: ``trouble`` says so.
        """
        answer = {did: self.veil.opaque(did) for did in dids}
        private = [did for did in answer if self.veil.privacy.hides(did)]
        with self._lock:
            self._learn(private)
            self._keep([did for did in private if did not in self._kept])
        return answer

    def _learn(self, dids: Iterable[Did]) -> None:
        for did in dids:
            if self.veil.privacy.hides(did):
                for name in self.veil.names(did):
                    self._plain[name] = did

    def _keep(self, dids: Sequence[Did]) -> None:
        if not (dids and self._file) or len(self._kept) + len(dids) > MOST_KEPT:
            return
        try:
            _append(self._file, "".join(f"{did}\n" for did in sorted(dids)))
        except OSError as error:
            self.trouble = f"{self._file}: {error.strerror}; exchanged names may be lost at a restart"
            return
        self.trouble = None
        self._kept.update(dids)

    def _load(self, file: Path) -> None:
        try:
            text = file.read_text("utf-8", "replace")
        except FileNotFoundError:
            return
        except OSError as error:
            self.trouble = f"{file}: {error.strerror}"
            return
        for line in text.splitlines():
            try:
                self._kept.add(parse_did(line))
            except BadDid:  # a torn line; whole ones stand
                continue
        self._learn(self._kept)


def _append(file: Path, lines: str) -> None:
    """Add whole *lines* to a file that only we may read, and see them on the disk."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, (("\n" if torn else "") + lines).encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def read_key(file: Path, key: str) -> bytes:
    """The HMAC key in *file*; *key* names it in the configuration. An end of line is no part of it.

    Raises:
        ConfigError: it cannot be read, others may read it, or it is too short.
    """
    advice = f"make it anew: head -c 32 /dev/urandom | base64 > {file}; chmod 600 {file}"
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            content = opened.read(4097).rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError([f"{key} {file}: {error.strerror}"]) from error
    if open_to_others(status):
        raise ConfigError([f"{key} {file}: others may read or write it; chmod 600 {file}"])
    if not LEAST_KEY_BYTES <= len(content) <= 4096:
        size = f"has {len(content)} bytes, a key has {LEAST_KEY_BYTES} to 4096"
        raise ConfigError([f"{key} {file}: {size}; {advice}"])
    if len(set(content)) < 8:
        raise ConfigError([f"{key} {file}: is no random key; {advice}"])
    return content


def open_to_others(status: os.stat_result) -> bool:
    """Is a secret with this *status* readable or writable by more than need be?

    Its group may read it where we are not its owner: so Kubernetes mounts secrets.
    """
    allowed = 0o700 if status.st_uid == os.geteuid() else 0o740
    return bool(stat.S_IMODE(status.st_mode) & ~allowed)
