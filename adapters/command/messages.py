"""Messages of the command stager: the JSON that the command reads and the lines that it writes. Pure."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from adapters.bounded_json import Record, decode_row, is_text, quote_excerpt
from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Site, parse_did
from hydrator.domain.ports.staging import (
    ExistingRule,
    OwnRequest,
    RefusalKind,
    RequestProgress,
    RequestState,
    SiteSpace,
    StagingError,
    StagingKind,
    StagingOrder,
    StagingPermissions,
    StagingRefused,
    StagingSize,
    StagingUnavailable,
)
from hydrator.domain.redaction import sanitize
from hydrator.domain.untrusted import MAX_CLASSAD_INTEGER, valid_integer, valid_number, valid_time

VERSION = 1
_MAX_TEXT_CHARS = 500
_STATES = {state.name.lower(): state for state in RequestState}
_REFUSAL_KINDS = {kind.name.lower(): kind for kind in RefusalKind}


class BadLine(ValueError):
    """A line that the command may not write; the message quotes it."""


def encode_request(action: str, **values: object) -> bytes:
    """Return the standard input of the command: one JSON object in one line."""
    return json.dumps({"version": VERSION, "action": action, **values}, sort_keys=True).encode() + b"\n"


def order_record(order: StagingOrder) -> dict[str, object]:
    """Return *order* as a JSON object; the lifetime is in whole seconds."""
    return {
        "tag": order.tag,
        "batch": order.batch,
        "kind": order.kind.value,
        "site": order.site,
        "did": order.did,
        "bytes": order.bytes,
        "lifetime_seconds": max(1, round(order.lifetime.total_seconds())),
        "storage": order.storage,
        "source": order.source,
    }


def request_record(request: OwnRequest) -> dict[str, object]:
    """Return *request* as a JSON object."""
    return {
        "tag": request.tag,
        "handle": request.handle,
        "kind": request.kind.value,
        "site": request.site,
        "did": request.did,
    }


def iter_lines(output: bytes) -> Iterator[Record]:
    """Yield the JSON objects of *output*, one for each line that is not empty.

    Raises:
        BadLine: a line is not a JSON object.
    """
    for line in output.splitlines():
        if line.strip():
            try:
                row = decode_row(line)
            except ValueError as error:
                raise BadLine(
                    f"a line is not JSON: {quote_excerpt(line.decode('utf-8', 'replace'))}"
                ) from error
            if not isinstance(row, dict):
                raise BadLine(f"a line is not a JSON object: {quote_excerpt(row)}")
            yield row


def parse_results(
    output: bytes, orders: Mapping[str, StagingOrder], name: str
) -> dict[str, OwnRequest | StagingError]:
    """Return the result of each order by tag, from lines with ``handle``, ``refused`` or ``unavailable``.

    Raises:
        BadLine: a line is unreadable, or about an order that was not sent.
    """
    results: dict[str, OwnRequest | StagingError] = {}
    for row in iter_lines(output):
        tag = _text(row, "tag")
        order = orders.get(tag)
        if order is None or tag in results:
            raise BadLine(f"a result for the tag {quote_excerpt(tag)}, which was not sent, or the second one")
        if row.get("refused") is not None:
            kind = _REFUSAL_KINDS.get(str(row.get("kind")), RefusalKind.OTHER)
            results[tag] = StagingRefused(name, sanitize(str(row["refused"]), _MAX_TEXT_CHARS), kind)
        elif row.get("unavailable") is not None:
            reason = sanitize(str(row["unavailable"]), _MAX_TEXT_CHARS)
            results[tag] = StagingUnavailable(name, reason)
        else:
            results[tag] = OwnRequest(tag, _text(row, "handle"), order.kind, order.site, order.did)
    return results


def parse_progress(output: bytes) -> dict[str, RequestProgress]:
    """Return the progress of requests by tag.

    Raises:
        BadLine: a line is unreadable.
    """
    found: dict[str, RequestProgress] = {}
    for row in iter_lines(output):
        kind = row.get("kind")
        if kind not in list(StagingKind):
            raise BadLine(f"kind must be pin or stage, not {quote_excerpt(kind)}")
        request = OwnRequest(
            _text(row, "tag"), _text(row, "handle"), StagingKind(kind), Site(_text(row, "site")), _did(row)
        )
        found[request.tag] = RequestProgress(
            request,
            _state(row),
            _number(row, "files_done") or 0,
            _number(row, "files_total"),
            _number(row, "bytes_done"),
            _number(row, "bytes_total"),
            _moment(row, "expires_at"),
            _moment(row, "ready_at"),
            sanitize(str(row.get("reason") or ""), _MAX_TEXT_CHARS),
        )
    return found


def parse_rules(output: bytes) -> list[ExistingRule]:
    """Return the rules and requests of all accounts.

    Raises:
        BadLine: a line is unreadable.
    """
    return [
        ExistingRule(
            _did(row),
            Site(_text(row, "site")),
            str(row.get("storage") or ""),
            _state(row),
            str(row.get("account") or ""),
            _text(row, "handle"),
            str(row.get("tag") or ""),
            _moment(row, "expires_at"),
            _moment(row, "ready_at"),
        )
        for row in iter_lines(output)
    ]


def parse_sizes(output: bytes) -> dict[Did, StagingSize]:
    """Return the sizes by DID; a size of 0 is unknown.

    Raises:
        BadLine: a line is unreadable.
    """
    sizes = {_did(row): (_number(row, "bytes"), _number(row, "files")) for row in iter_lines(output)}
    return {did: StagingSize(size, files) for did, (size, files) in sizes.items() if size}


def parse_spaces(output: bytes, now: datetime) -> dict[Site, SiteSpace]:
    """Return the space by site; it is from *now* unless the line has its time.

    Raises:
        BadLine: a line is unreadable.
    """
    spaces: dict[Site, SiteSpace] = {}
    for row in iter_lines(output):
        free, total = _number(row, "free_bytes"), _number(row, "total_bytes")
        if free is None or total is None:
            raise BadLine(f"a line has no free_bytes or total_bytes: {quote_excerpt(row)}")
        spaces[Site(_text(row, "site"))] = SiteSpace(free, total, min(now, _moment(row, "as_of") or now))
    return spaces


def parse_permissions(output: bytes) -> StagingPermissions:
    """Return the permissions of the first line; without a line nothing is known.

    Raises:
        BadLine: the line is unreadable.
    """
    row: Record = next(iter_lines(output), {})
    notes = row.get("notes") or []
    if not isinstance(notes, list):
        raise BadLine(f"notes must be a list of texts, not {quote_excerpt(notes)}")
    known: dict[str, Any] = {
        key: row[key] if isinstance(row.get(key), bool) else None
        for key in ("can_ask", "can_renew", "can_cancel")
    }
    return StagingPermissions(
        **known, notes=tuple(sanitize(str(note), _MAX_TEXT_CHARS) for note in notes[:20])
    )


def _text(row: Record, key: str) -> str:
    value = row.get(key)
    if not is_text(value) or len(str(value)) > _MAX_TEXT_CHARS:
        raise BadLine(f"a line needs a text as {key}: {quote_excerpt(row)}")
    return str(value)


def _did(row: Record) -> Did:
    try:
        return parse_did(_text(row, "did"))
    except BadDid as error:
        raise BadLine(str(error)) from None


def _state(row: Record) -> RequestState:
    state = _STATES.get(str(row.get("state")))
    if state is None:
        raise BadLine(f"the state {quote_excerpt(row.get('state'))} is not one of {', '.join(_STATES)}")
    return state


def _number(row: Record, key: str) -> int | None:
    value = row.get(key)
    if value is not None and valid_integer(value, MAX_CLASSAD_INTEGER) is None:
        raise BadLine(f"{key} must be a whole number, not {quote_excerpt(value)}")
    return value


def _moment(row: Record, key: str) -> datetime | None:
    value = row.get(key)
    if value is None:
        return None
    moment = valid_time(value) if valid_number(value) is not None else None
    if moment is None:
        raise BadLine(f"{key} must be a time in Unix seconds, not {quote_excerpt(value)}")
    return moment
