"""Store of the pseudonyms: the private DIDs that users sent, in a file that only the daemon's user can read.

The file lists real DIDs, one a line; the daemon computes the pseudonyms from the keys. If the file is lost,
the daemon finds the private datasets again in the catalogues' listings, which takes time.

A user who may request pseudonyms can send guessed DIDs. So the store limits the number of DIDs, in memory
and on disk. It forgets a DID that no job and no catalogue names within a day. If there are too many DIDs,
it forgets the oldest DIDs first.
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
"""Maximum private datasets in the store. The daemon finds a forgotten dataset again in a catalogue's list."""
UNCONFIRMED_SECONDS = 86_400
"""The store forgets a DID if neither a job nor a catalogue names it within these seconds."""


class PseudonymStore:
    """A map from pseudonyms to DIDs; thread-safe.

    Args:
        pseudonymizer: the private datasets and the keys.
        file: the file for DIDs that users sent; None keeps these DIDs in memory only.
        max_dids: the maximum number of DIDs in memory and, approximately, in the file; 2 or more.
        monotonic_seconds: a clock that never goes back, in seconds.
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
        """The DIDs that a user sent and no job or catalogue has named since, with the time, oldest first."""
        self._confirmed_dids: dict[Did, None] = {}
        """The DIDs that a job or a catalogue has named; first the DID that was named longest ago."""
        self._stored_dids: set[Did] = set()
        self._line_count = 0
        self._write_problem: str | None = None
        self._is_full = False
        if file:
            self._load(file)

    @property
    def problem(self) -> str | None:
        """Return the reason why DIDs may be lost; None if the store keeps all DIDs."""
        full = f"there are more than {self._max_dids} private datasets, so the daemon forgets the oldest"
        problems = [self._write_problem, full if self._is_full else None]
        return "; ".join(filter(None, problems)) or None

    def resolve(self, pseudonym: Did) -> Did | None:
        """Return the DID of *pseudonym*, which a job names; None if the store does not have it."""
        with self._lock:
            did = self._did_by_pseudonym.get(pseudonym)
            if did is not None:
                self._mark_confirmed(did)
            return did

    def learn(self, dids: Iterable[Did], sought_pseudonyms: AbstractSet[Did] = frozenset()) -> None:
        """Add the private DIDs of *dids*, which a catalogue lists, to the memory but not to the file.

        If there are more DIDs than the limit, keep the DIDs whose pseudonym is in *sought_pseudonyms*.
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
        """Add the DIDs of *other*, the store that the daemon used before a reload of the configuration."""
        with other._lock:
            confirmed_dids, exchanged_dids = list(other._confirmed_dids), list(other._exchanged_at)
        self.learn(confirmed_dids)
        with self._lock:
            self._add_exchanged([did for did in exchanged_dids if self.pseudonymizer.privacy.is_private(did)])

    def exchange(self, dids: Iterable[Did]) -> Mapping[Did, Did]:
        """Return, for each DID, its name in the pool; save private DIDs for a later restart.

        If the file cannot be written, set ``problem`` and still return the names.
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
        """Record that a job or a catalogue named *did*. Of all DIDs, the store now forgets *did* last."""
        self._exchanged_at.pop(did, None)
        self._confirmed_dids.pop(did, None)
        self._confirmed_dids[did] = None

    def _add_exchanged(self, dids: Iterable[Did]) -> None:
        """Add *dids* that a user sent; these datasets may not exist."""
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
        """Forget the DIDs that no job or catalogue has named within UNCONFIRMED_SECONDS."""
        oldest = self._monotonic_seconds() - UNCONFIRMED_SECONDS
        while self._exchanged_at and next(iter(self._exchanged_at.values())) < oldest:
            self._forget_oldest(self._exchanged_at)
        self._is_full = (
            self._is_full and len(self._exchanged_at) + len(self._confirmed_dids) >= self._max_dids
        )

    def _enforce_limit(self) -> None:
        """Forget the oldest DIDs beyond the limit.

        If DIDs that no job or catalogue has named are more than half of the limit, forget the oldest of them.
        Otherwise forget the oldest DID that a job or a catalogue named.
        """
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
            self._write_problem = f"{self._file}: {error.strerror}; private names may be lost at a restart"
            return
        if dids or has_many_old:
            self._write_problem = None
        self._stored_dids.update(dids)

    def _compact(self, file: Path) -> None:
        """Rewrite the file with the DIDs in the store. The DIDs that a job or a catalogue named come last."""
        dids = [did for did in (*self._exchanged_at, *self._confirmed_dids) if did in self._stored_dids]
        replace_file(file, "".join(f"{did}\n" for did in dids).encode())
        self._line_count = len(dids)

    def _load(self, file: Path) -> None:
        """Read the last lines of the file: the newest DIDs, up to the limit of the store."""
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
            except BadDid:  # an incomplete line, after a crash: skip it
                continue
        self._stored_dids.update(dids)
        self._add_exchanged([did for did in dids if self.pseudonymizer.privacy.is_private(did)])


def _append_lines(file: Path, lines: str) -> None:
    """Append complete *lines* to *file*, which only the daemon's user may read; flush the file to disk."""
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
    """Read the HMAC key in *file*; *key* is the name of its setting. A line end is not part of the key.

    Raises:
        ConfigError: the file cannot be read, other users may read it, or its size is not valid.
    """
    advice = f"make a new key: head -c 32 /dev/urandom | base64 > {file}; chmod 600 {file}"
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = stream.read(4097).rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError([f"{key} {file}: {error.strerror}"]) from error
    if is_open_to_others(status):
        raise ConfigError([f"{key} {file}: other users may read or write it; chmod 600 {file}"])
    if not MIN_KEY_BYTES <= len(content) <= 4096:
        size = f"has {len(content)} bytes, a key has {MIN_KEY_BYTES} to 4096"
        raise ConfigError([f"{key} {file}: {size}; {advice}"])
    if len(set(content)) < 8:
        raise ConfigError([f"{key} {file}: is not a random key; {advice}"])
    return content


def is_open_to_others(status: os.stat_result) -> bool:
    """Return True if other users than the daemon's may read or write a secret file with this *status*.

    The file's group may read it if another user owns it, because Kubernetes mounts secrets this way.
    """
    allowed = 0o700 if status.st_uid == os.geteuid() else 0o740
    return bool(stat.S_IMODE(status.st_mode) & ~allowed)
