"""What catalogues tell of their own accord, as far as we heed it: which datasets to look at first.

An event is a hint and never a fact. Whoever can send one can make us ask a
catalogue sooner, and :class:`Front` bounds about how much; nothing else: what is
published comes from answers of catalogues alone, through the same cycle as ever.

The names and the fields are those that Rucio's daemon hermes sends [1]: an
object with ``event_type``, in lower case, ``payload`` and ``created_at``.

[1] Rucio 41.5: daemons/hermes/hermes.py; the payloads in core/did.py, core/request.py, core/rule.py
    and daemons/reaper/reaper.py.
"""

import json
import threading
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from .errors import BadDid
from .model import Did, parse_did

MAX_EVENT_BYTES: Final = 64 * 1024
"""Rucio's largest, a transfer that failed with a long reason, has some 4 kB."""

_OWN: Final = (("scope", "name"),)
_FILE: Final = (("datasetScope", "dataset"), ("scope", "name"))
_LOST: Final = (("dataset_scope", "dataset_name"), ("scope", "name"))
_CHILD: Final = (("scope", "name"), ("childscope", "childname"))

NAMES: Final = {
    "create_dts": _OWN,
    "create_cnt": _OWN,
    "register_cnt": _CHILD,
    "open": _OWN,
    "close": _OWN,
    "erase": _OWN,
    "lost": _LOST,
    "rule_ok": _OWN,
    "rule_progress": _OWN,
    "datasetlock_ok": _OWN,
    "deletion-planned": _FILE,
    "deletion-done": _FILE,
    "deletion-failed": _FILE,
    "deletion-not-found": _FILE,
    **{
        f"{request}-{state}": _FILE
        for request in ("transfer", "stagein", "stageout")
        for state in ("queued", "submitted", "submission_failed", "done", "failed", "lost")
    },
}
"""By type of event, the pairs of payload fields that name what it concerns; the rest of it is not read."""


class Drop(StrEnum):
    """Why an event is not heeded; the event itself is never repeated, since anybody may have written it."""

    TOO_LARGE = "too_large"
    GARBLED = "garbled"  # not the JSON of an event
    UNKNOWN = "unknown"  # a type that says nothing about where data is
    NAMELESS = "nameless"  # no DID in it that a job could name
    UNWANTED = "unwanted"  # of datasets that nobody wants


def hinted(body: bytes) -> frozenset[Did] | Drop:
    """The datasets that one event speaks of, or why it is dropped; raises nothing, whatever *body* is."""
    if len(body) > MAX_EVENT_BYTES:
        return Drop.TOO_LARGE
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return Drop.GARBLED
    if not isinstance(event, dict):
        return Drop.GARBLED
    kind, payload = event.get("event_type"), event.get("payload")
    if not isinstance(kind, str) or not isinstance(payload, dict):
        return Drop.GARBLED
    pairs = NAMES.get(kind.lower())
    if pairs is None:
        return Drop.UNKNOWN
    named = (_did(payload.get(scope), payload.get(name)) for scope, name in pairs)
    return frozenset(did for did in named if did is not None) or Drop.NAMELESS


def _did(scope: Any, name: Any) -> Did | None:  # noqa: ANN401 - as it came
    if not isinstance(scope, str) or not isinstance(name, str):
        return None
    try:
        return parse_did(f"{scope}:{name}")
    except BadDid:
        return None


@dataclass(frozen=True, slots=True)
class Due:
    """What to look at first: *dids*, or *everything* and *why* where events may have been missed."""

    dids: frozenset[Did] = frozenset()
    why: str | None = None

    @property
    def everything(self) -> bool:
        return self.why is not None

    def __bool__(self) -> bool:
        return bool(self.dids) or self.everything


class Front:
    """What events brought to the front of the queue; safe from any thread.

    A storm costs what its datasets cost, not its events: each dataset stands
    here once. Of more than *most* all are looked at in one full poll.

    Args:
        most: how many datasets may stand here.
        known: what jobs call a dataset; an opaque name where it is private, so
            that no other name of it is kept.
    """

    def __init__(self, most: int, known: Callable[[Did], Did] = lambda did: did) -> None:
        self._most = most
        self._known = known
        self._lock = threading.Lock()
        self._dids: set[Did] = set()
        self._why: str | None = None

    def event(self, body: bytes, wanted: AbstractSet[Did]) -> Drop | None:
        """Take one event in; why it was dropped, or None. Only *wanted* datasets are kept."""
        found = hinted(body)
        if isinstance(found, Drop):
            return found
        heeded = {self._known(did) for did in found} & wanted
        if not heeded:
            return Drop.UNWANTED
        with self._lock:
            self._dids |= heeded
            if len(self._dids) > self._most:
                self._dids.clear()
                self._why = self._why or f"events spoke of more than {self._most} datasets at a time"
        return None

    def gap(self, why: str) -> None:
        """Events may have been missed: all is polled next; the first reason is the one that is told."""
        with self._lock:
            self._why = self._why or why

    def take(self) -> Due:
        """What is due now; it stands here no more. A full poll looks at everything, so at the rest too."""
        with self._lock:
            due = Due(frozenset() if self._why else frozenset(self._dids), self._why)
            self._dids.clear()
            self._why = None
            return due
