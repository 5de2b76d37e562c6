"""Events of a catalogue: parse a message and return the DIDs that the message names."""

import json
from enum import StrEnum
from typing import Any, Final

from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, parse_did

MAX_EVENT_BYTES: Final = 64 * 1024
"""Maximum bytes of an event. Rucio's largest, a failed transfer with a long reason, has some 4 kB."""


_DID_FIELDS: Final = (("scope", "name"),)


_FILE_FIELDS: Final = (("datasetScope", "dataset"), ("scope", "name"))


_LOST_FILE_FIELDS: Final = (("dataset_scope", "dataset_name"), ("scope", "name"))


_CHILD_FIELDS: Final = (("scope", "name"), ("childscope", "childname"))


DID_FIELDS_BY_EVENT_TYPE: Final = {
    "create_dts": _DID_FIELDS,
    "create_cnt": _DID_FIELDS,
    "register_cnt": _CHILD_FIELDS,
    "open": _DID_FIELDS,
    "close": _DID_FIELDS,
    "erase": _DID_FIELDS,
    "lost": _LOST_FILE_FIELDS,
    "rule_ok": _DID_FIELDS,
    "rule_progress": _DID_FIELDS,
    "datasetlock_ok": _DID_FIELDS,
    "deletion-planned": _FILE_FIELDS,
    "deletion-done": _FILE_FIELDS,
    "deletion-failed": _FILE_FIELDS,
    "deletion-not-found": _FILE_FIELDS,
    **{
        f"{request}-{state}": _FILE_FIELDS
        for request in ("transfer", "stagein", "stageout")
        for state in ("queued", "submitted", "submission_failed", "done", "failed", "lost")
    },
}
"""By event type, the pairs of payload fields (scope, name) with the affected DIDs. No other field is read."""


class RejectReason(StrEnum):
    """The reasons to drop an event. The daemon never logs the event, because anyone may have written it."""

    TOO_LARGE = "too_large"
    GARBLED = "garbled"  # the message is not the JSON of an event
    UNKNOWN = "unknown"  # the type of the event does not concern the location of data
    NAMELESS = "nameless"  # the event has no DID that a job could name
    UNWANTED = "unwanted"  # no job, pin or pattern names the datasets of the event
    TOO_MANY = "too_many"  # not parsed, because more events than events.per_second arrived


def parse_event(body: bytes) -> frozenset[Did] | RejectReason:
    """Return the DIDs that one event names, or the reason to drop the event.

    This function never raises an error, even if *body* is not valid.
    """
    if len(body) > MAX_EVENT_BYTES:
        return RejectReason.TOO_LARGE
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return RejectReason.GARBLED
    if not isinstance(event, dict):
        return RejectReason.GARBLED
    kind, payload = event.get("event_type"), event.get("payload")
    if not isinstance(kind, str) or not isinstance(payload, dict):
        return RejectReason.GARBLED
    pairs = DID_FIELDS_BY_EVENT_TYPE.get(kind.lower())
    if pairs is None:
        return RejectReason.UNKNOWN
    named = (_parse_did(payload.get(scope), payload.get(name)) for scope, name in pairs)
    return frozenset(did for did in named if did is not None) or RejectReason.NAMELESS


def _parse_did(scope: Any, name: Any) -> Did | None:  # noqa: ANN401 - any JSON value
    if not isinstance(scope, str) or not isinstance(name, str):
        return None
    try:
        return parse_did(f"{scope}:{name}")
    except BadDid:
        return None
