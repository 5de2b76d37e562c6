"""A stand-in for SKA's DMAPI, Site Capabilities and IAM, from recorded answers, defects included.

It is not DMAPI, whose source is not public. Inferred and not recorded: the listing of a namespace.
`put` sets its content and `habits` its defects. Loopback only.
"""

import hashlib
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

CLIENT, SECRET = "hydrator", "not-a-real-secret"
DM_AUDIENCE, SC_AUDIENCE = "data-management-api", "site-capabilities-api"


@dataclass
class Habits:
    """Faults of the stand-in; may be changed at any time."""

    shape: str = "2026"  # of locate: "2024" a record, "2025" a list, "2026" with is_dataset
    status: int | None = None  # every answer but tokens
    html: bool = False  # the ingress answers instead
    token_seconds: float = 3600.0
    unknown_is_empty: bool = False  # locate of an unknown DID answers 200 []
    cut_at: int | None = None  # the longest list it gives, whatever limit says
    without_area: bool = False  # locate names no storage area
    next_page: bool = False
    retry_after: str | None = None
    fails: int = 0  # so many answers are 503 first
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
    bytes_each: int = 1000


class DmapiStandIn:
    """All three services on one port: ``/dm``, ``/sc`` and ``/token``."""

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
        self._tokens: dict[str, tuple[str, float]] = {}
        self._random = random.Random(0)
        dm = {
            "/data/list": self._namespaces,
            "/data/list/{namespace}": self._listing,
            "/data/locate/{namespace}/{name:path}": self._locate,
            "/metadata/{namespace}/{name:path}": self._metadata,
            "/ping": self._ping,
        }
        sc = {
            f"/{kind}": self._capabilities(kind)
            for kind in ("nodes", "sites", "storages", "storage-areas", "services")
        }
        routes = [Route("/token", self._token, methods=["POST"])]
        routes += [Route(f"/dm/api/v1{path}", self._guard(DM_AUDIENCE, call)) for path, call in dm.items()]
        routes += [Route(f"/sc/api/v1{path}", self._guard(SC_AUDIENCE, call)) for path, call in sc.items()]
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the stand-in did not start")
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)

    @property
    def root(self) -> str:
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

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

    async def _token(self, request: Request) -> Response:
        self.calls.append("/token")
        form = dict(item.split("=", 1) for item in (await request.body()).decode().split("&"))
        import base64

        given = request.headers.get("authorization", "").removeprefix("Basic ")
        if base64.b64decode(given) != f"{CLIENT}:{SECRET}".encode():
            return JSONResponse({"error": "invalid_client", "error_description": "Bad credentials"}, 401)
        if form.get("grant_type") != "client_credentials":
            return JSONResponse({"error": "unsupported_grant_type"}, 400)
        token = f"eyJ-token-{len(self._tokens)}"
        self._tokens[token] = form.get("audience", ""), time.monotonic() + self.habits.token_seconds
        return JSONResponse({"access_token": token, "expires_in": self.habits.token_seconds})

    def _guard(self, audience: str, call: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            self.calls.append(request.url.path)
            habits = self.habits
            if habits.fails > 0:
                habits.fails -= 1
                return self._busy()
            if habits.html:
                return Response("<html><h1>Welcome to nginx!</h1></html>", media_type="text/html")
            if habits.status == 503:
                return self._busy()
            if habits.status:
                return JSONResponse({"detail": "configured to answer so"}, habits.status)
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            known, until = self._tokens.get(token, ("", 0.0))
            if until <= time.monotonic():
                words = "Token is inactive. This may be due to an invalid or expired token."
                return JSONResponse({"detail": words}, 401)
            if known != audience:
                words = f"Token has an incorrect audience, got '{known}' expected '{audience}'"
                nested = f"HTTP error occurred: 401, response: {json.dumps({'detail': words})}"
                return JSONResponse({"detail": nested}, 401)
            path = request.url.path.rpartition("/api/v1")[2]
            if path in habits.answers:
                return Response(json.dumps(habits.answers[path]), media_type="application/json")
            return call(request)

        return answer

    def _busy(self) -> Response:
        after = self.habits.retry_after
        return PlainTextResponse("try later", 503, {"Retry-After": after} if after else {})

    def _namespaces(self, _: Request) -> Response:
        return JSONResponse(self._shuffle(self.namespaces))

    def _listing(self, request: Request) -> Response:
        """Return the listing of a namespace: inferred, not recorded."""
        scope = request.path_params["namespace"] + ":"
        return self._list([did.removeprefix(scope) for did in self.held if did.startswith(scope)])

    def _locate(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        did = f"{namespace}:{name}"
        if request.query_params.get("sort") == "nearest_by_ip":
            return PlainTextResponse("Internal Server Error", 500)
        if namespace in self.habits.denied:
            words = "You do not have permission to access this resource."
            return JSONResponse({"detail": words}, 403)
        if did in self.habits.lost:
            return PlainTextResponse("Internal Server Error", 500)
        if did not in self.held:
            return JSONResponse([]) if self.habits.unknown_is_empty else _unknown(did)
        entries = [self._entry(did, storage) for storage, count in self.held[did].at.items() if count]
        if self.habits.shape == "2024":
            by_storage = {e["identifier"]: {"replicas": e["replicas"], "services": []} for e in entries}
            return JSONResponse(by_storage)
        return self._list(entries)

    def _entry(self, did: str, storage: str) -> dict[str, Any]:
        """Return one location, with the defects that are set."""
        held, (namespace, _, name) = self.held[did], did.partition(":")
        here = held.at[storage]
        numbers = range(here) if isinstance(here, int) else here
        names = [name] if held.kind == "FILE" else [f"{name}/table.{n}" for n in numbers]
        entry: dict[str, Any] = {"identifier": storage}
        if not self.habits.without_area:
            area = next((a["id"] for a in self.areas if a.get("name") == storage), "unknown-area")
            entry["associated_storage_area_id"] = area
        replicas = self._shuffle([_pfn(storage, namespace, each) for each in names])
        entry["replicas"] = replicas[: self.habits.cut_at]
        if self.habits.shape == "2026":
            entry["is_dataset"] = held.kind != "FILE"
        return entry

    def _metadata(self, request: Request) -> Response:
        did = f"{request.path_params['namespace']}:{request.path_params['name']}"
        if did in self.habits.no_metadata:
            return PlainTextResponse("Internal Server Error", 500)
        if did not in self.held:
            return _unknown(did)
        held = self.held[did]
        row = {
            "did_type": held.kind,
            "is_open": held.is_open,
            "length": held.files,
            "bytes": held.files * held.bytes_each,
        }
        return JSONResponse({"scope": did.partition(":")[0], "name": did.partition(":")[2], **row})

    def _ping(self, _: Request) -> Response:
        return JSONResponse({"status": "UP", "version": "0.6.5"})

    def _capabilities(self, kind: str) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            rows: list[dict[str, Any]] = getattr(self, "areas" if kind == "storage-areas" else kind)
            if request.query_params.get("include_inactive") != "true":
                rows = [_drop_falsy(row) for row in rows if not row.get("is_force_disabled")]
            return self._list(rows)

        return answer

    def _list(self, rows: list[Any]) -> Response:
        rows = self._shuffle(rows)[: self.habits.cut_at]
        return JSONResponse(rows, headers={"Link": '</x>; rel="next"'} if self.habits.next_page else {})

    def _shuffle(self, rows: Any) -> list[Any]:  # noqa: ANN401
        return self._random.sample(sorted(rows, key=str), len(rows))


def _unknown(did: str) -> Response:
    scope, _, name = did.partition(":")
    inner = {
        "ExceptionClass": "DataIdentifierNotFound",
        "ExceptionMessage": f"Data identifier '{did}' not found",
    }
    url = f"https://rucio.example.org/dids/{scope}/{name}/meta?plugin=DID_COLUMN"
    words = f"HTTP error occurred: 404 Client Error: NOT FOUND for url: {url}, response: {json.dumps(inner)}"
    return JSONResponse({"detail": words}, 404)


def _pfn(storage: str, scope: str, name: str) -> str:
    digest = hashlib.md5(f"{scope}:{name}".encode(), usedforsecurity=False).hexdigest()
    return (
        f"davs://{storage.lower()}.example.org:1094/disk/{storage}/{scope}/{digest[:2]}/{digest[2:4]}/{name}"
    )


def _drop_falsy(row: dict[str, Any]) -> dict[str, Any]:
    """Remove what the default answers omit: every key whose value is falsy, tier 0 among them."""
    return {key: value for key, value in row.items() if value}
