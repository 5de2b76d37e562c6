"""A stand-in for a Rucio server: fast, in this process, with answers in the form of a real server's.

Its content is set by dataset and storage element: ``available``, ``partial`` (half of the files) or
``staging`` (half of them, and a rule transfers the rest). It is for the many tests of faults; Rucio's own
behaviour is tested on the real server (`testbed.rucio`).
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from .loopback import LoopbackRequest, LoopbackServer

FILES = 4
FILE_BYTES = 1000
_ON_DISK = {"available": FILES, "partial": FILES // 2, "staging": FILES // 2}
Holdings = Mapping[str, Mapping[str, str]]


class RucioStandIn(LoopbackServer):
    """A server with the storage elements *storages*, each with its site; ``holdings`` may be replaced."""

    def __init__(self, storages: Mapping[str, str], holdings: Holdings | None = None) -> None:
        super().__init__()
        self.storages = dict(storages)
        self.holdings: Holdings = holdings or {}
        self.asked: list[str] = []
        """The paths of the requests that :meth:`answer` got."""
        self.password: str | None = None
        """Whoever logs in must have it; None: anybody may. A new one ends the tokens given before."""
        self.refusals = 0
        self.logins = 0

    @property
    def token(self) -> str:
        """Return the current answer to a login."""
        return f"token-{sha256(str(self.password).encode()).hexdigest()}"

    def on_denial(self) -> None:
        """Do nothing before a client is denied; tests replace it to change something at that moment."""

    def reply(self, request: LoopbackRequest) -> None:
        """Log in, deny, or send what :meth:`answer` returns."""
        place = urlsplit(request.path)
        wanted, token = self.password, self.token
        is_known = wanted in {None, request.headers["X-Rucio-Password"]}
        if place.path == "/auth/x509" or (place.path == "/auth/userpass" and is_known):
            self.logins += 1
            request.send(200, {"Content-Type": "application/octet-stream", "X-Rucio-Auth-Token": token})
            return
        if wanted and request.headers["X-Rucio-Auth-Token"] != token:
            self.refusals += 1
            self.on_denial()
            json_type = {"Content-Type": "application/json"}
            request.send(401, {**json_type, "ExceptionClass": "CannotAuthenticate"}, b"{}")
            return
        self.asked.append(place.path)
        body = json.loads(request.sent) if request.sent else None
        status, found = self.answer(place.path, parse_qs(place.query), body)
        stream = isinstance(found, list) and place.path != "/scopes/"
        text = "".join(json.dumps(row) + "\n" for row in found) if stream else json.dumps(found)
        headers = {"Content-Type": "application/x-json-stream" if stream else "application/json"}
        if status == 404:
            headers["ExceptionClass"] = found["ExceptionClass"]
        request.send(status, headers, text.encode())

    def answer(self, path: str, query: Mapping[str, list[str]], body: Any) -> tuple[int, Any]:  # noqa: ANN401, C901
        """Return the status, and rows (a list) or one value, for a request."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match parts:
            case ["rses"]:
                return 200, [
                    {"rse": each, "rse_type": "DISK", "deleted": False} for each in sorted(self.storages)
                ]
            case ["rses", storage, "attr"]:
                return 200, {"site": self.storages[storage], storage: True}
            case ["dids", "bulkmeta"]:
                return 200, [self._meta(did) for did in _dids(body) if did in self.holdings]
            case ["dids", scope, "dids", "search"]:
                mine = [did for did in sorted(self.holdings) if did.startswith(f"{scope}:")]
                return 200, [self._meta(did) for did in mine]
            case ["dids", _, _, "rules"] | ["rules"]:
                return 200, []
            case ["rules", rule]:
                row = {"id": rule, "scope": "lofar", "name": rule, "state": "REPLICATING"}
                return 200, [{**row, "rse_expression": "*", "account": "root", "expires_at": None}]
            case ["dids", scope, name] if f"{scope}:{name}" in self.holdings:
                return 200, self._meta(f"{scope}:{name}")
            case ["replicas", "datasets_bulk"]:
                return 200, [row for did in _dids(body) for row in self._replicas(did)]
            case ["replicas", scope, name, "datasets"]:
                return 200, self._replicas(f"{scope}:{name}")
            case ["locks", "bulk_locks_for_dids"]:
                return 200, [row for did in _dids(body) for row in self._locks(did)]
            case ["scopes"]:
                return 200, sorted({did.partition(":")[0] for did in self.holdings})
        return 404, {"ExceptionClass": "DataIdentifierNotFound", "ExceptionMessage": f"{path} {query}"}

    @staticmethod
    def _meta(did: str) -> dict[str, Any]:
        scope, name = did.split(":", 1)
        sizes = {"bytes": FILES * FILE_BYTES, "length": FILES}
        return {"scope": scope, "name": name, "did_type": "DATASET", "is_open": False, **sizes}

    def _replicas(self, did: str) -> list[dict[str, Any]]:
        scope, name = did.split(":", 1)
        return [
            {
                "scope": scope,
                "name": name,
                "rse": storage,
                "length": FILES,
                "available_length": _ON_DISK[state],
                "bytes": FILES * FILE_BYTES,
                "available_bytes": _ON_DISK[state] * FILE_BYTES,
                "state": "AVAILABLE" if state == "available" else "UNAVAILABLE",
                "updated_at": "Sat, 21 Nov 2026 12:00:00 UTC",
            }
            for storage, state in sorted(self.holdings.get(did, {}).items())
        ]

    def _locks(self, did: str) -> list[dict[str, Any]]:
        scope, name = did.split(":", 1)
        return [
            {"scope": scope, "name": name, "rse": storage, "state": "REPLICATING", "rule_id": f"rule-{name}"}
            for storage, state in sorted(self.holdings.get(did, {}).items())
            if state == "staging"
        ]


def _dids(body: Any) -> list[str]:  # noqa: ANN401
    return [f"{each['scope']}:{each['name']}" for each in body["dids"]]
