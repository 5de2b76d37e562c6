"""Store of the pseudonyms: exchanged DIDs, in a file that only the daemon reads.

The file lists real DIDs, one a line; pseudonyms are computed from the keys. So a lost file loses only
time: private datasets are found again in the catalogues' listings.

A user who may exchange names may exchange guesses. So the number of names is bounded, in memory and on
disk: a name that no job and no catalogue had within a day is forgotten, and beyond the bound the oldest
of these first.
"""

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from hydrator.domain.errors import BadDid, ConfigError
from hydrator.domain.files import replace_file
from hydrator.domain.model import MAX_DID_CHARS, Did, parse_did

from .pseudonyms import MIN_KEY_BYTES, Pseudonymizer

FILE_NAME = "private-datasets"
MAX_DIDS = 200_000
"""The number of private datasets to remember; a forgotten one is found again if a catalogue lists it."""
UNCONFIRMED_SECONDS = 86_400
"""The time after which an exchanged name is forgotten that neither a job nor a catalogue has."""


class PseudonymStore:
    """Maps pseudonyms to DIDs; safe to use from several threads.

    Args:
        pseudonymizer: the private datasets and the keys.
        file: stores exchanged DIDs; None keeps them in memory only.
        max_dids: the number of DIDs to keep, in memory and, roughly, in the file; 2 or more.
        monotonic_seconds: a clock that never goes back.
    """

    def __init__(
        self,
        pseudonymizer: Pseudonymizer,
        file: Path | None = None,
        *,
        max_dids: int = MAX_DIDS,
        monotonic_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pseudonymizer = pseudonymizer
        self._file = file
        self._max_dids = max_dids
        self._monotonic_seconds = monotonic_seconds
        self._lock = threading.Lock()
        self._did_by_pseudonym: dict[Did, Did] = {}
        self._exchanged_at: dict[Did, float] = {}
        """The DIDs that were exchanged and not seen since, each with the time, the oldest first."""
        self._confirmed_dids: dict[Did, None] = {}
        """The DIDs that a job or a catalogue has named, the one first that was named longest ago."""
        self._stored_dids: set[Did] = set()
        self._line_count = 0
        self._write_problem: str | None = None
        self._is_full = False
        if file:
            self._load(file)

    @property
    def problem(self) -> str | None:
        """Return the reason why names may be lost; None if the store keeps all."""
        full = f"more than {self._max_dids} private datasets were named, so the oldest are forgotten"
        problems = [self._write_problem, full if self._is_full else None]
        return "; ".join(filter(None, problems)) or None

    def resolve(self, pseudonym: Did) -> Did | None:
        """Return the DID of *pseudonym*, which a job has; None if it is unknown."""
        with self._lock:
            did = self._did_by_pseudonym.get(pseudonym)
            if did is not None:
                self._mark_confirmed(did)
            return did

    def learn(self, dids: Iterable[Did], sought_pseudonyms: AbstractSet[Did] = frozenset()) -> None:
        """Add the pseudonyms of the private ones of *dids*, which a catalogue has, until the process ends.

        If these are more than the limit, those with *sought_pseudonyms* are kept.
        """
        with self._lock:
            sought = []
            for did in dids:
                if not self.pseudonymizer.privacy.is_private(did):
                    continue
                names = self.pseudonymizer.pseudonyms(did)
                if sought_pseudonyms.isdisjoint(names):
                    self._add_confirmed(did, names)
                else:
                    sought.append((did, names))
            for did, names in sought:
                self._add_confirmed(did, names)

    def learn_from(self, other: "PseudonymStore") -> None:
        """Add the names that *other*, of the configuration before a reload, received meanwhile."""
        with other._lock:
            confirmed_dids, exchanged_dids = list(other._confirmed_dids), list(other._exchanged_at)
        self.learn(confirmed_dids)
        with self._lock:
            self._add_exchanged([did for did in exchanged_dids if self.pseudonymizer.privacy.is_private(did)])

    def exchange(self, dids: Iterable[Did]) -> Mapping[Did, Did]:
        """Return by DID the name to use in the pool; store private ones, so that they survive a restart.

        A file that cannot be written loses none of the answers: ``problem`` says so.
        """
        name_by_did = {did: self.pseudonymizer.pseudonym(did) for did in dids}
        private = [did for did in name_by_did if self.pseudonymizer.privacy.is_private(did)]
        with self._lock:
            self._forget_expired()
            self._add_exchanged(private)
            known = [did for did in private if did in self._confirmed_dids or did in self._exchanged_at]
            self._append_to_file([did for did in known if did not in self._stored_dids])
        return name_by_did

    def _add_confirmed(self, did: Did, names: Iterable[Did]) -> None:
        for name in names:
            self._did_by_pseudonym[name] = did
        self._mark_confirmed(did)
        self._enforce_limit()

    def _mark_confirmed(self, did: Did) -> None:
        """Record that a job or a catalogue named *did*: the store now forgets it last."""
        self._exchanged_at.pop(did, None)
        self._confirmed_dids.pop(did, None)
        self._confirmed_dids[did] = None

    def _add_exchanged(self, dids: Iterable[Did]) -> None:
        """Add *dids* that a user exchanged; they may not exist."""
        now = self._monotonic_seconds()
        for did in dids:
            if did in self._confirmed_dids:
                continue
            self._exchanged_at.pop(did, None)
            self._exchanged_at[did] = now
            for name in self.pseudonymizer.pseudonyms(did):
                self._did_by_pseudonym[name] = did
            self._enforce_limit()

    def _forget_expired(self) -> None:
        """Forget DIDs that were exchanged long ago and never seen since."""
        oldest = self._monotonic_seconds() - UNCONFIRMED_SECONDS
        while self._exchanged_at and next(iter(self._exchanged_at.values())) < oldest:
            self._forget_oldest(self._exchanged_at)
        self._is_full = (
            self._is_full and len(self._exchanged_at) + len(self._confirmed_dids) >= self._max_dids
        )

    def _enforce_limit(self) -> None:
        """Forget the oldest DIDs beyond the limit: unconfirmed ones, while these are the larger part."""
        while len(self._exchanged_at) + len(self._confirmed_dids) > self._max_dids:
            self._is_full = True
            only = len(self._exchanged_at) > self._max_dids // 2 or not self._confirmed_dids
            self._forget_oldest(self._exchanged_at if only else self._confirmed_dids)

    def _forget_oldest(self, store: dict[Did, float] | dict[Did, None]) -> None:
        did = next(iter(store))
        del store[did]
        self._stored_dids.discard(did)
        for name in self.pseudonymizer.pseudonyms(did):
            self._did_by_pseudonym.pop(name, None)

    def _append_to_file(self, dids: Sequence[Did]) -> None:
        if not self._file:
            return
        known_count = len(self._exchanged_at) + len(self._confirmed_dids)
        has_many_old = (
            self._line_count > 2 * known_count + 1000
            or self._line_count > self._max_dids + self._max_dids // 4
        )
        try:
            if has_many_old:
                self._stored_dids.update(dids)
                self._compact(self._file)
            elif dids:
                _append_lines(self._file, "".join(f"{did}\n" for did in sorted(dids)))
                self._line_count += len(dids)
        except OSError as error:
            self._stored_dids.difference_update(dids)
            self._write_problem = f"{self._file}: {error.strerror}; exchanged names may be lost at a restart"
            return
        if dids or has_many_old:
            self._write_problem = None
        self._stored_dids.update(dids)

    def _compact(self, file: Path) -> None:
        """Write only the DIDs that are still known; confirmed ones last, as the newest."""
        dids = [did for did in (*self._exchanged_at, *self._confirmed_dids) if did in self._stored_dids]
        replace_file(file, "".join(f"{did}\n" for did in dids).encode())
        self._line_count = len(dids)

    def _load(self, file: Path) -> None:
        """Read the newest lines of the file, as many as may be kept."""
        newest: deque[bytes] = deque(maxlen=self._max_dids)
        try:
            with file.open("rb") as lines:
                while line := lines.readline(2 * MAX_DID_CHARS):
                    newest.append(line)
                    self._line_count += 1
        except FileNotFoundError:
            return
        except OSError as error:
            self._write_problem = f"{file}: {error.strerror}"
            return
        dids: dict[Did, None] = {}
        for line in newest:
            try:
                dids[parse_did(line.decode("utf-8", "replace").rstrip("\r\n"))] = None
            except BadDid:  # a torn line; whole ones are kept
                continue
        self._stored_dids.update(dids)
        self._add_exchanged([did for did in dids if self.pseudonymizer.privacy.is_private(did)])


def _append_lines(file: Path, lines: str) -> None:
    """Append whole *lines* to a file that only the daemon's user may read, and sync it to disk."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        size = os.fstat(handle).st_size
        is_torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, (("\n" if is_torn else "") + lines).encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def read_key(file: Path, key: str) -> bytes:
    """Read the HMAC key in *file*; *key* names it in the configuration. A line end is not part of the key.

    Raises:
        ConfigError: it cannot be read, others may read it, or it is too short.
    """
    advice = f"make it again: head -c 32 /dev/urandom | base64 > {file}; chmod 600 {file}"
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = stream.read(4097).rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError([f"{key} {file}: {error.strerror}"]) from error
    if is_open_to_others(status):
        raise ConfigError([f"{key} {file}: others may read or write it; chmod 600 {file}"])
    if not MIN_KEY_BYTES <= len(content) <= 4096:
        size = f"has {len(content)} bytes, a key has {MIN_KEY_BYTES} to 4096"
        raise ConfigError([f"{key} {file}: {size}; {advice}"])
    if len(set(content)) < 8:
        raise ConfigError([f"{key} {file}: is not a random key; {advice}"])
    return content


def is_open_to_others(status: os.stat_result) -> bool:
    """Return True if a secret with this *status* is readable or writable by more users than necessary.

    Its group may read it if another user owns it: so Kubernetes mounts secrets.
    """
    allowed = 0o700 if status.st_uid == os.geteuid() else 0o740
    return bool(stat.S_IMODE(status.st_mode) & ~allowed)
