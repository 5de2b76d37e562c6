"""A stand-in for SKA's DMAPI, Site Capabilities and IAM, from recorded answers, defects included.

It is not DMAPI, whose source is not public. Inferred and not recorded: the listing of a namespace.
`put` sets its content and `habits` its defects.
"""

import base64
import hashlib
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from .loopback import LoopbackRequest, LoopbackServer

CLIENT, SECRET = "hydrator", "not-a-real-secret"
DM_AUDIENCE, SC_AUDIENCE = "data-management-api", "site-capabilities-api"
FILE_BYTES = 1000
TOKEN_SECONDS = 3600.0


@dataclass
class Habits:
    """Faults of the stand-in; may be changed at any time."""

    shape: str = "2026"  # of locate: "2024" a record, "2025" a list, "2026" with is_dataset
    status: int | None = None  # every answer but tokens
    html: bool = False  # the ingress answers instead
    unknown_is_empty: bool = False  # locate of an unknown DID answers 200 []
    cut_at: int | None = None  # the longest list it gives, whatever limit says
    next_page: bool = False
    lost: set[str] = field(default_factory=set)  # DIDs whose locate answers 500
    no_metadata: set[str] = field(default_factory=set)  # DIDs whose metadata answers 500
    denied: set[str] = field(default_factory=set)  # namespaces
    answers: dict[str, Any] = field(default_factory=dict)  # by path below /api/v1: this instead, as JSON


@dataclass
class Held:
    """One DID: its files by storage element (a number, or their names), and how many there are."""

    files: int
    at: dict[str, int | range]
    kind: str = "DATASET"
    is_open: bool = False


class DmapiStandIn:
    """All three services, at ``/dm``, ``/sc`` and ``/token`` of ``root``.

    Clients in this process get answers by ``transport``; within ``with``, all get them at a port of loopback.
    """

    def __init__(self) -> None:
        self.habits = Habits()
        self.held: dict[str, Held] = {}
        self.namespaces: set[str] = {"testing"}
        self.nodes: list[dict[str, Any]] = []
        self.sites: list[dict[str, Any]] = []
        self.storages: list[dict[str, Any]] = []
        self.areas: list[dict[str, Any]] = []
        self.services: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.root = "http://dmapi.invalid"
        self.transport = httpx.MockTransport(self.answer)
        self._tokens: dict[str, tuple[str, float]] = {}
        self._random = random.Random(0)

    def __enter__(self) -> Self:
        self._server = LoopbackServer(self._reply).__enter__()
        self.root = self._server.url
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    @property
    def url(self) -> str:
        return f"{self.root}/dm/api/v1"

    @property
    def capabilities_url(self) -> str:
        return f"{self.root}/sc/api/v1"

    @property
    def token_url(self) -> str:
        return f"{self.root}/token"

    def add_area(self, site: str, name: str, **more: Any) -> str:  # noqa: ANN401
        """Add a storage area of *site* for the storage element *name*; return its id."""
        key = f"area-{len(self.areas)}"
        site_id, storage_id = f"site-{site}", f"storage-{len(self.storages)}"
        where = {"parent_node_name": "NODE", "parent_site_name": site, "parent_site_id": site_id}
        if not self.nodes:
            self.nodes.append({"name": "NODE", "downtime": [], "is_force_disabled": False})
        if all(each["id"] != site_id for each in self.sites):
            self.sites.append({"parent_node_name": "NODE", "id": site_id, "name": site, "downtime": []})
        self.storages.append({**where, "id": storage_id, "host": "se.example.org", "device_type": "hdd"})
        self.areas.append(
            {
                **where, "parent_storage_id": storage_id, "id": key, "type": "rse", "name": name, "tier": 0,
                "relative_path": "/dev", "downtime": [], "is_force_disabled": False, **more,
            }
        )  # fmt: skip
        return key

    def put(
        self, did: str, files: int, at: dict[str, int | range], kind: str = "DATASET", is_open: bool = False
    ) -> None:
        """Store *did* of *files* files, with some of them (a number, or names) at each storage element."""
        self.namespaces.add(did.partition(":")[0])
        self.held[did] = Held(files, at, kind, is_open)

    def expire_tokens(self) -> None:
        """Expire all tokens issued so far."""
        self._tokens = dict.fromkeys(self._tokens, ("", 0.0))

    def _reply(self, request: LoopbackRequest) -> None:
        given = dict(request.headers.items())
        url = f"{self.root}{request.path}"
        found = self.answer(httpx.Request(request.command, url, headers=given, content=request.sent))
        request.send(found.status_code, found.headers, found.content)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Return the answer to *request*."""
        path = request.url.path
        self.calls.append(path)
        if path == "/token":
            return self._issue_token(request)
        return self._refuse(request) or self._find(path.rpartition("/api/v1")[2], request.url.params)

    def _issue_token(self, request: httpx.Request) -> httpx.Response:
        form = dict(item.split("=", 1) for item in request.content.decode().split("&"))
        given = request.headers.get("authorization", "").removeprefix("Basic ")
        if base64.b64decode(given) != f"{CLIENT}:{SECRET}".encode():
            words = {"error": "invalid_client", "error_description": "Bad credentials"}
            return httpx.Response(401, json=words)
        if form.get("grant_type") != "client_credentials":
            return httpx.Response(400, json={"error": "unsupported_grant_type"})
        token = f"eyJ-token-{len(self._tokens)}"
        self._tokens[token] = form.get("audience", ""), time.monotonic() + TOKEN_SECONDS
        return httpx.Response(200, json={"access_token": token, "expires_in": TOKEN_SECONDS})

    def _refuse(self, request: httpx.Request) -> httpx.Response | None:
        """Return the answer of a service that has other habits, or does not accept the token."""
        habits = self.habits
        if habits.html:
            return httpx.Response(200, html="<html><h1>Welcome to nginx!</h1></html>")
        if habits.status:
            return httpx.Response(habits.status, json={"detail": "configured to answer so"})
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        known, until = self._tokens.get(token, ("", 0.0))
        expected = DM_AUDIENCE if request.url.path.startswith("/dm/") else SC_AUDIENCE
        if until <= time.monotonic():
            words = "Token is inactive. This may be due to an invalid or expired token."
        elif known != expected:
            inner = {"detail": f"Token has an incorrect audience, got '{known}' expected '{expected}'"}
            words = f"HTTP error occurred: 401, response: {json.dumps(inner)}"
        else:
            return None
        return httpx.Response(401, json={"detail": words})

    def _find(self, path: str, query: httpx.QueryParams) -> httpx.Response:
        if path in self.habits.answers:
            return httpx.Response(200, text=json.dumps(self.habits.answers[path]))
        match path.split("/")[1:]:
            case ["data", "list"]:
                return httpx.Response(200, json=self._shuffle(self.namespaces))
            case ["data", "list", scope]:  # inferred, not recorded
                dids = [did for did in self.held if did.startswith(f"{scope}:")]
                return self._list([did.removeprefix(f"{scope}:") for did in dids])
            case ["data", "locate", scope, *name]:
                return self._locate(scope, "/".join(name), query)
            case ["metadata", scope, *name]:
                return self._metadata(scope, "/".join(name))
            case ["storage-areas"]:
                return self._capabilities(self.areas, query)
            case ["nodes" | "sites" | "storages" | "services" as kind]:
                return self._capabilities(getattr(self, kind), query)
        return httpx.Response(404, json={"detail": "Not Found"})

    def _locate(self, scope: str, name: str, query: httpx.QueryParams) -> httpx.Response:
        did = f"{scope}:{name}"
        if query.get("sort") == "nearest_by_ip" or did in self.habits.lost:
            return httpx.Response(500, text="Internal Server Error")
        if scope in self.habits.denied:
            words = "You do not have permission to access this resource."
            return httpx.Response(403, json={"detail": words})
        if did not in self.held:
            return httpx.Response(200, json=[]) if self.habits.unknown_is_empty else _unknown(did)
        entries = [self._entry(did, storage) for storage, count in self.held[did].at.items() if count]
        if self.habits.shape == "2024":
            by_storage = {e["identifier"]: {"replicas": e["replicas"], "services": []} for e in entries}
            return httpx.Response(200, json=by_storage)
        return self._list(entries)

    def _entry(self, did: str, storage: str) -> dict[str, Any]:
        """Return one location, with the defects that are set."""
        held, (namespace, _, name) = self.held[did], did.partition(":")
        here = held.at[storage]
        numbers = range(here) if isinstance(here, int) else here
        names = [name] if held.kind == "FILE" else [f"{name}/table.{n}" for n in numbers]
        area = next((a["id"] for a in self.areas if a.get("name") == storage), "unknown-area")
        entry: dict[str, Any] = {"identifier": storage, "associated_storage_area_id": area}
        replicas = self._shuffle([_pfn(storage, namespace, each) for each in names])
        entry["replicas"] = replicas[: self.habits.cut_at]
        if self.habits.shape == "2026":
            entry["is_dataset"] = held.kind != "FILE"
        return entry

    def _metadata(self, scope: str, name: str) -> httpx.Response:
        did = f"{scope}:{name}"
        if did in self.habits.no_metadata:
            return httpx.Response(500, text="Internal Server Error")
        if did not in self.held:
            return _unknown(did)
        held = self.held[did]
        row = {
            "did_type": held.kind,
            "is_open": held.is_open,
            "length": held.files,
            "bytes": held.files * FILE_BYTES,
        }
        return httpx.Response(200, json={"scope": scope, "name": name, **row})

    def _capabilities(self, rows: list[dict[str, Any]], query: httpx.QueryParams) -> httpx.Response:
        if query.get("include_inactive") != "true":
            rows = [_drop_falsy(row) for row in rows if not row.get("is_force_disabled")]
        return self._list(rows)

    def _list(self, rows: list[Any]) -> httpx.Response:
        headers = {"Link": '</x>; rel="next"'} if self.habits.next_page else {}
        return httpx.Response(200, json=self._shuffle(rows)[: self.habits.cut_at], headers=headers)

    def _shuffle(self, rows: Any) -> list[Any]:  # noqa: ANN401
        return self._random.sample(sorted(rows, key=str), len(rows))


def _unknown(did: str) -> httpx.Response:
    scope, _, name = did.partition(":")
    inner = {
        "ExceptionClass": "DataIdentifierNotFound",
        "ExceptionMessage": f"Data identifier '{did}' not found",
    }
    url = f"https://rucio.example.org/dids/{scope}/{name}/meta?plugin=DID_COLUMN"
    words = f"HTTP error occurred: 404 Client Error: NOT FOUND for url: {url}, response: {json.dumps(inner)}"
    return httpx.Response(404, json={"detail": words})


def _pfn(storage: str, scope: str, name: str) -> str:
    digest = hashlib.md5(f"{scope}:{name}".encode(), usedforsecurity=False).hexdigest()
    return (
        f"davs://{storage.lower()}.example.org:1094/disk/{storage}/{scope}/{digest[:2]}/{digest[2:4]}/{name}"
    )


def _drop_falsy(row: dict[str, Any]) -> dict[str, Any]:
    """Remove what the default answers omit: every key whose value is falsy, tier 0 among them."""
    return {key: value for key, value in row.items() if value}
