"""Our HTTP answers as OpenAPI 3.1, for programs that make clients or tests of it: ``/v1/openapi.json``.

Kept beside the routes by hand, since what is promised is decided here and not
derived; tests ask the server whether it keeps all of it, and nothing else.
"""

from typing import Any, Final

from hydrator import __version__
from hydrator.domain.model import MAX_DID_CHARS, DatasetState

from .dataset_query import MAX_DATASETS

JsonObject = dict[str, Any]

_TEXT: Final[JsonObject] = {"type": "string"}
_COUNT: Final[JsonObject] = {"type": "integer", "minimum": 0}
_OPTIONAL_COUNT: Final[JsonObject] = {"type": ["integer", "null"], "minimum": 0}
_UNIX_TIME: Final[JsonObject] = {"type": "integer", "minimum": 0, "description": "Unix time, seconds"}
_DID: Final[JsonObject] = {
    "type": "string",
    "pattern": "^[A-Za-z0-9._/@=+~-]+:[A-Za-z0-9._:/@=+~-]+$",
    "maxLength": MAX_DID_CHARS,
}

_ERRORS: Final = {
    400: "The question is malformed.",
    401: "A token is needed, or the one sent is not known.",
    403: "The token is for something else.",
    404: "There is no ad of that site.",
    413: "A request body where nothing reads one, or one that is too large.",
    414: "The URL is too long.",
    421: "The Host header names a server that this is not: a page of that name may be asking.",
    431: "The headers are too long.",
    429: "Too many requests from this address or with this token; Retry-After says when to ask again.",
    500: "A bug; the daemon's log says more.",
    503: "There is no complete state yet, or the tokens cannot be read; Retry-After says when to ask again.",
}
_HEADERS: Final = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}


def build_openapi() -> JsonObject:
    """The whole description."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "classad-hydrator",
            "version": __version__,
            "description": "Which datasets each site of an HTCondor pool holds. Nothing can be changed here; "
            "an event only says what to look at first.",
        },
        "paths": _paths(),
        "components": {
            "schemas": _schemas(),
            "responses": {f"E{status}": _error_response(status) for status in _ERRORS},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "hydrator token new; docs/security.md",
                }
            },
        },
    }


def _paths() -> JsonObject:
    site = {
        "name": "site",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": 500},
    }
    asked: JsonObject = {
        "name": "did",
        "in": "query",
        "description": "a dataset, scope:name; again for more of them; without it all demanded ones",
        "explode": True,
        "schema": {"type": "array", "items": _DID},
    }
    unchanged = {
        "name": "If-None-Match",
        "in": "header",
        "description": "the ETag of an earlier answer",
        "schema": {"type": "string", "pattern": '^(W/)?"[0-9]{1,15}"$'},
    }
    job: JsonObject = {
        "name": "job",
        "in": "query",
        "description": "a job, 123.4, or all of a cluster, 123; without it there is the form alone",
        "schema": {"type": "string", "pattern": r"^[0-9]{1,10}(\.[0-9]{1,10})?$"},
    }
    schedd = {**job, "name": "schedd", "description": "its schedd; without it all are asked", "schema": _TEXT}
    return {
        "/": _route("The page for people.", _ok_response("text/html", _TEXT)),
        "/why": _route(
            "Why a job is idle, for people. Only where tokens are asked for.",
            {status: _html_response(words) for status, words in _WHY_RESPONSES.items()},
            (),
            [job, schedd],
        ),
        "/v1/sites": _route("All sites with an ad.", _ok_response("application/json", _ref("Sites"))),
        "/v1/sites/{site}/ad": _route(
            "The ad of one site, one attribute a line: what the hook prints.",
            {
                "200": _ad_response("The ad.", {"text/plain": {"schema": _TEXT}}),
                "304": _ad_response(
                    "The ad has the generation of If-None-Match; its age is in the headers.", None
                ),
            },
            (404, 503),
            [site, unchanged],
        ),
        "/v1/datasets": _route(
            "Where datasets are.",
            _ok_response("application/json", _ref("Datasets")),
            (400, 503),
            [asked, *_page_parameters()],
        ),
        "/v1/private": _route(
            "What jobs call datasets: private ones by opaque names. Needs a token with role submit.",
            _ok_response("application/json", _ref("Names")),
            (400,),
            [{**asked, "required": True, "schema": {**asked["schema"], "minItems": 1}}],
        ),
        "/v1/events": {"post": _event_route()},
        "/v1/openapi.json": _route(
            "This text.", _ok_response("application/json", {"type": "object"}), (), is_public=True
        ),
        "/metrics": _route(
            "Metrics for Prometheus.",
            {
                "200": {
                    "description": "In the form that the scraper asks for.",
                    "content": {
                        "text/plain": {"schema": _TEXT},
                        "application/openmetrics-text": {"schema": _TEXT},
                    },
                }
            },
        ),
        "/healthz": _route(
            "The process answers, and its cycles do not hang.",
            _ok_response("application/json", _ref("Health")),
            (503,),
            is_public=True,
        ),
        "/readyz": _route(
            "A complete state was loaded or read.",
            _ok_response("application/json", _ref("Ready")),
            (503,),
            is_public=True,
        ),
    }


def _page_parameters() -> list[JsonObject]:
    """Describe how a question that names no dataset is cut into pages."""
    return [
        {
            "name": "limit",
            "in": "query",
            "description": "datasets in one answer; default: all that are named",
            "schema": {"type": "integer", "minimum": 1, "maximum": MAX_DATASETS},
        },
        {
            "name": "after",
            "in": "query",
            "description": "the `next` of an earlier answer",
            "schema": _DID,
        },
    ]


def _route(
    summary: str,
    answers: JsonObject,
    errors: tuple[int, ...] = (),
    parameters: list[JsonObject] | None = None,
    *,
    is_public: bool = False,
) -> JsonObject:
    """GET and HEAD of one path; an *open_* one asks for no token."""
    always = (413, 414, 421, 429, 431, 500, *(() if is_public else (401, 403, 503)))
    refused = {str(each): {"$ref": f"#/components/responses/E{each}"} for each in {*errors, *always}}
    bodiless = {status: {k: v for k, v in each.items() if k != "content"} for status, each in answers.items()}
    asked = {"parameters": parameters or [], "security": [] if is_public else [{"token": []}, {}]}
    empty = {str(each): {"description": _ERRORS[each]} for each in {*errors, *always}}
    return {
        "get": {"summary": summary, **asked, "responses": {**answers, **dict(sorted(refused.items()))}},
        "head": {"summary": f"{summary} Without the body.", **asked, "responses": {**bodiless, **empty}},
    }


def _event_route() -> JsonObject:
    """POST of one event; only its names are read."""
    event = _object({"event_type": _TEXT, "payload": {"type": "object"}})
    event["additionalProperties"] = True
    errors = (400, 401, 403, 413, 414, 421, 429, 431, 500, 503)
    return {
        "summary": "A dataset changed: it is looked at soon. Needs a token with role event.",
        "description": "As Rucio's daemon hermes sends it; of types that are not known nothing is read.",
        "security": [{"token": []}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": event}}},
        "responses": {
            "202": {
                "description": "It was taken; nobody is told whether anybody wants the dataset.",
                "content": {"application/json": {"schema": _object({"version": {"const": 1}})}},
            },
            **{str(each): {"$ref": f"#/components/responses/E{each}"} for each in errors},
        },
    }


_WHY_RESPONSES: Final = {
    "200": "The answer.",
    "400": "The text is no job, or several schedds have it.",
    "404": "No schedd has it.",
    "502": "The pool could not be asked.",
}


def _html_response(description: str) -> JsonObject:
    return {"description": description, "content": {"text/html": {"schema": _TEXT}}}


def _ok_response(media_type: str, schema: JsonObject) -> JsonObject:
    return {"200": {"description": "The answer.", "content": {media_type: {"schema": schema}}}}


def _ad_response(description: str, content: JsonObject | None) -> JsonObject:
    """An answer with the ad's generation and age in its headers."""
    headers = {
        "ETag": {"description": "the generation", "schema": {"type": "string", "pattern": '^"[0-9]+"$'}},
        "X-DataLocality-AsOf": {
            "description": "when the site was last read completely",
            "schema": _UNIX_TIME,
        },
        "Cache-Control": {"schema": _TEXT},
    }
    return {"description": description, "headers": headers, **({"content": content} if content else {})}


def _error_response(status: int) -> JsonObject:
    """One refusal; its schema is the same for all."""
    answer: JsonObject = {
        "description": _ERRORS[status],
        "content": {"application/json": {"schema": _ref("Error")}},
    }
    if status in _HEADERS:
        answer["headers"] = {_HEADERS[status]: {"required": True, "schema": _TEXT}}
    return answer


def _ref(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: JsonObject, optional: JsonObject | None = None) -> JsonObject:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _array(items: JsonObject) -> JsonObject:
    return {"type": "array", "items": items}


def _schemas() -> JsonObject:
    fact = {
        "site": _TEXT,
        "state": {"enum": [state.value for state in DatasetState]},
        "fraction": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        "as_of": _UNIX_TIME,
        "age_seconds": _COUNT,
        "told": {
            **_object(
                {},
                {"reason": _TEXT, "rule": _TEXT, "account": _TEXT, "expires_at": _UNIX_TIME}
                | {"ready_at": _UNIX_TIME, "ready_error": {"type": "number", "minimum": 0}},
            ),
            "description": "how the catalogue came to the state; ready_error in seconds",
        },
    }
    dataset = {
        "did": _DID,
        "demanded": {"type": "boolean"},
        "jobs": _COUNT,
        "bytes": _OPTIONAL_COUNT,
        "unseen": {"type": ["string", "null"], "description": "why it could not be asked about; not: absent"},
        "clashes_with": _array(_DID),
        "left_out_at": {**_array(_TEXT), "description": "sites whose ads have no room for it (budget)"},
        "near": {
            **_array(_DID),
            "description": "of a named one that exists nowhere: names that look like it",
        },
        "sites": _array(_object(fact)),
    }
    site = {
        "site": _TEXT,
        "generation": _COUNT,
        "as_of": _UNIX_TIME,
        "age_seconds": _COUNT,
        "heard": {"type": "number", "description": "when it was last put here; Unix time, seconds"},
        "known_datasets": _OPTIONAL_COUNT,
        "held": {"type": ["string", "null"], "description": "the change that is held back"},
        "ad": {"type": "string", "description": "the path of its ad"},
    }
    head = {"version": {"const": 1}, "now": _UNIX_TIME}
    return {
        "Error": _object(
            {"error": _TEXT, "detail": _TEXT}, {"ready": {"const": False}, "nearby": _array(_TEXT)}
        ),
        "Sites": _object({**head, "sites": _array(_object(site))}),
        "Datasets": _object(
            {
                **head,
                "datasets": _array(_object(dataset)),
                "next": {
                    "anyOf": [_DID, {"type": "null"}],
                    "description": "there are more: ask again with after = this",
                },
            }
        ),
        "Names": _object(
            {"version": {"const": 1}, "datasets": _array(_object({"did": _DID, "name": _TEXT}))}
        ),
        "Health": _object({"status": {"const": "ok"}}),
        "Ready": _object({"ready": {"const": True}}),
    }
