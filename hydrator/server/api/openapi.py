"""OpenAPI 3.1 document of the HTTP API, ``/v1/openapi.json``, derived from :mod:`hydrator.server.api.models`.

Tests ask a real server for everything that the document allows, and check each answer against the document.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from hydrator import __version__

from . import models
from .locality import models as locality_models

JsonObject = dict[str, Any]

_TEXT: Final[JsonObject] = {"type": "string"}
_ERRORS: Final = {
    400: "The request is malformed.",
    401: "A token is required, or the token is not known.",
    403: "The role of the token does not allow this request.",
    404: "The site does not have an ad.",
    413: "The route accepts no request body, or the body is too large.",
    414: "The URL is too long.",
    421: "The server does not answer to the host name in the Host header.",
    431: "The headers are too long.",
    429: "Too many requests from this address or with this token; Retry-After has the seconds to wait.",
    500: "A bug; the daemon's log has the traceback.",
    503: "No complete state exists yet, or the tokens cannot be read; Retry-After has the seconds to wait.",
}
_ERROR_HEADERS: Final = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}
_LOCALITY_LINES: Final = (
    locality_models.LocalityHead,
    locality_models.LocalityRow,
    locality_models.LocalityEnd,
)
_ERRORS_OF_ALL: Final = (413, 414, 421, 429, 431, 500)
_ERRORS_WITH_TOKENS: Final = (*_ERRORS_OF_ALL, 401, 403, 503)


@dataclass(frozen=True, slots=True)
class _Response:
    """A response that is not an error; ``content`` is a JSON schema by media type."""

    description: str
    content: Mapping[str, JsonObject] = field(default_factory=dict)
    headers: Mapping[str, JsonObject] = field(default_factory=dict)

    @property
    def head(self) -> JsonObject:
        """The response without its body."""
        headers = {"headers": dict(self.headers)} if self.headers else {}
        return {"description": self.description, **headers}

    @property
    def document(self) -> JsonObject:
        content = {media_type: {"schema": schema} for media_type, schema in self.content.items()}
        return {**self.head, "content": content} if content else self.head


@dataclass(frozen=True, slots=True)
class _Route:
    """GET and HEAD of one path; a public route never requires a token."""

    summary: str
    responses: Mapping[int, _Response]
    errors: tuple[int, ...] = ()
    parameters: Mapping[str, type] = field(default_factory=dict)
    """By location (query, path, header), a type of :mod:`hydrator.server.api.models`."""
    is_public: bool = False

    @property
    def document(self) -> JsonObject:
        errors = sorted({*self.errors, *(_ERRORS_OF_ALL if self.is_public else _ERRORS_WITH_TOKENS)})
        common = {
            "parameters": list(_parameters(self.parameters)),
            "security": [] if self.is_public else [{"token": []}, {}],
        }
        responses = {str(status): response.document for status, response in self.responses.items()}
        heads = {str(status): response.head for status, response in self.responses.items()}
        bare_errors = {str(status): {"description": _ERRORS[status]} for status in errors}
        return {
            "get": {"summary": self.summary, **common, "responses": responses | _error_references(errors)},
            "head": {
                "summary": f"{self.summary} The answer has headers only.",
                **common,
                "responses": heads | bare_errors,
            },
        }


@cache
def build_openapi() -> JsonObject:
    """Build the OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "classad-hydrator",
            "version": __version__,
            "description": "The datasets at each site of an HTCondor pool. Clients cannot change anything; "
            "an event only says which dataset the daemon should poll first.",
        },
        "paths": {path: route.document for path, route in _ROUTES.items()} | _post_paths(),
        "components": {
            "schemas": _schemas(),
            "responses": {f"E{status}": _error_response(status) for status in _ERRORS},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "hydrator token new creates a token; see docs/reference/security.md",
                }
            },
        },
    }


def _json_response(model: type, description: str = "The answer.") -> dict[int, _Response]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {200: _Response(description, {"application/json": schema})}


def _text_response(*media_types: str, description: str = "The answer.") -> _Response:
    return _Response(description, dict.fromkeys(media_types, _TEXT))


_AD_HEADERS: Final[Mapping[str, JsonObject]] = {
    "ETag": {"description": "the generation", "schema": {"type": "string", "pattern": '^"[0-9]+"$'}},
    "X-DataLocality-AsOf": {
        "description": "time of the last complete reading of the site",
        "schema": {"type": "integer", "minimum": 0, "description": "Unix time, seconds"},
    },
    "Cache-Control": {"schema": _TEXT},
}
_UNTIL_HEADER: Final[Mapping[str, JsonObject]] = {
    "X-DataLocality-EstimatesUntil": {
        "description": "jobs do not use the ad's estimates after this time; no header if it has none",
        "schema": {"type": "integer", "minimum": 0, "description": "Unix time, seconds"},
    },
}


def _ad_route(summary: str, headers: Mapping[str, JsonObject]) -> _Route:
    return _Route(
        summary,
        {
            200: _Response("The ad.", {"text/plain": _TEXT}, headers),
            304: _Response(
                "The ad still has the generation in If-None-Match; X-DataLocality-AsOf has the facts' time.",
                {},
                headers,
            ),
        },
        (404, 503),
        {"path": models.AdParameters, "header": models.AdHeaders},
    )


def _page_route(summary: str, missing: str, parameters: type, *, bad_text: str | None = None) -> _Route:
    """Describe a page; with *bad_text*, which describes status 400, the pool is asked and may not answer."""
    errors = {404: missing}
    if bad_text:
        errors = {400: bad_text, 404: missing, 502: "The pool did not answer."}
    responses = {status: _text_response("text/html", description=text) for status, text in errors.items()}
    return _Route(summary, {200: _text_response("text/html"), **responses}, parameters={"query": parameters})


_ROUTES: Final[Mapping[str, _Route]] = {
    "/": _Route("The page for people.", {200: _text_response("text/html")}),
    "/site": _page_route("The page of one site.", "No such site.", models.SiteParameters),
    "/dataset": _page_route("The page of one dataset.", "No such dataset.", models.DatasetParameters),
    "/run": _page_route(
        "The page of one run, or of one cluster: how far its jobs are.",
        "No job of the run or cluster is queued.",
        models.RunParameters,
        bad_text="The text is not a cluster, or several schedds have the cluster.",
    ),
    "/live": _Route(
        "Say when the pages have something new: server-sent events, to a client that accepts them.",
        {200: _Response("Events, each with the id of a version.", {"text/event-stream": {}})},
        parameters={"query": models.LiveParameters},
    ),
    "/page.js": _Route("The script of the pages.", {200: _text_response("text/javascript")}, is_public=True),
    "/why": _page_route(
        "The page that explains why a job is idle. The page works only if the server requires tokens.",
        "No schedd has the job.",
        models.WhyParameters,
        bad_text="The text is not a job number, or several schedds have the job.",
    ),
    "/v1/sites": _Route("List all sites with an ad.", _json_response(models.Sites)),
    "/v2/sites/{site}/ad": _ad_route(
        "The ad of one site, one attribute a line, as the hook prints it.", {**_AD_HEADERS, **_UNTIL_HEADER}
    ),
    "/v1/sites/{site}/ad": _ad_route(
        "The ad of one site for a hook of contract 1: without answers for sets of datasets.", _AD_HEADERS
    ),
    "/v1/datasets": _Route(
        "List datasets and the sites that have them.",
        _json_response(models.Datasets),
        (400, 503),
        {"query": models.DatasetsParameters},
    ),
    "/v1/sets": _Route(
        "List the sets of datasets that queued jobs need, with the estimates at each site.",
        _json_response(models.Sets),
        (400, 503),
        {"query": models.SetsParameters},
    ),
    "/v1/private": _Route(
        "Return the names that jobs use for datasets: pseudonyms for private data. Needs role submit.",
        _json_response(models.Names),
        (400,),
        {"query": models.NamesParameters},
    ),
    "/v1/openapi.json": _Route(
        "This document.",
        {200: _Response("The answer.", {"application/json": {"type": "object"}})},
        is_public=True,
    ),
    "/metrics": _Route(
        "Metrics for Prometheus.",
        {
            200: _text_response(
                "text/plain",
                "application/openmetrics-text",
                description="The metrics, in the format that the scraper asks for.",
            )
        },
    ),
    "/healthz": _Route(
        "The process answers, and the daemon's cycles do not hang.",
        _json_response(models.Health),
        (503,),
        is_public=True,
    ),
    "/readyz": _Route(
        "The daemon loaded a complete state, or read one from the catalogues.",
        _json_response(models.Ready),
        (503,),
        is_public=True,
    ),
}


def _locality_response() -> JsonObject:
    """Describe the stream: the schema is that of the list of its lines, as in OpenAPI 3.2."""
    lines = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in _LOCALITY_LINES]
    return {
        "description": "One JSON object a line: LocalityHead, LocalityRow for each dataset, LocalityEnd. "
        "A large answer may have several pages. Without LocalityEnd, the answer was cut.",
        "content": {"application/x-ndjson": {"schema": {"type": "array", "items": {"oneOf": lines}}}},
    }


def _post_paths() -> JsonObject:
    """Return the OpenAPI descriptions of the routes that accept POST."""
    event = {
        "summary": "Report that a dataset changed, so that the daemon polls it soon. Needs role event.",
        "description": "An event as Rucio's daemon hermes sends it; events of unknown types are ignored.",
    }
    locality = {
        "summary": "Return where up to 10,000 datasets are: state, share, bytes, age and seconds by site.",
        "description": "For schedulers of any kind. The daemon answers from its last poll of the catalogues.",
    }
    set_locality = {
        "summary": "Return where a job that reads all these datasets could run, and when they are usable."
    }
    return {
        "/v1/events": _post(
            event,
            models.Event,
            {
                "202": {
                    "description": "The event is accepted, whether or not the dataset is in demand.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Accepted"}}},
                }
            },
            needs_token=True,
        ),
        "/v1/locality": _post(locality, locality_models.LocalityQuery, {"200": _locality_response()}),
        "/v1/locality/set": _post(
            set_locality,
            locality_models.SetLocalityQuery,
            {"200": _json_response(locality_models.SetLocality)[200].document},
        ),
    }


def _post(text: JsonObject, body: type, responses: JsonObject, *, needs_token: bool = False) -> JsonObject:
    """Return the OpenAPI description of POST; *needs_token* if a server without tokens refuses it."""
    return {
        "post": {
            **text,
            "security": [{"token": []}] if needs_token else [{"token": []}, {}],
            "requestBody": {"required": True, "content": {"application/json": {"schema": _schema(body)}}},
            "responses": {**responses, **_error_references((400, *_ERRORS_WITH_TOKENS))},
        }
    }


def _error_references(statuses: Iterable[int]) -> JsonObject:
    return {str(status): {"$ref": f"#/components/responses/E{status}"} for status in sorted(statuses)}


def _error_response(status: int) -> JsonObject:
    """Describe the response for one error status; all error responses have the same schema."""
    response: JsonObject = {
        "description": _ERRORS[status],
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    if status in _ERROR_HEADERS:
        response["headers"] = {_ERROR_HEADERS[status]: {"required": True, "schema": _TEXT}}
    return response


_REFERENCE: Final = "#/components/schemas/{model}"


class _UntitledSchema(GenerateJsonSchema):
    """A generator of JSON schemas without titles of fields, which would only repeat the fields' names."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 - as in pydantic
        return False


def _schema(model: type) -> JsonObject:
    """Return the schema of *model*; the schemas that it refers to are those of :func:`_schemas`."""
    schema = TypeAdapter(model).json_schema(ref_template=_REFERENCE, schema_generator=_UntitledSchema)
    schema.pop("$defs", None)
    return schema


def _parameters(models_by_location: Mapping[str, type]) -> Iterable[JsonObject]:
    for location, model in models_by_location.items():
        schema = _schema(model)
        required = schema.get("required", ())
        for name, value in schema["properties"].items():
            description = {"description": value.pop("description")} if "description" in value else {}
            yield {
                "name": name,
                "in": location,
                "required": name in required,
                **description,
                "schema": value,
            }


def _schemas() -> JsonObject:
    """Return, by name, the schemas of all answers and of their rows, and of the parts of bodies."""
    answers = (
        models.Error,
        models.Sites,
        models.Datasets,
        models.Sets,
        models.Names,
        models.Accepted,
        models.Health,
        models.Ready,
        *_LOCALITY_LINES,
        locality_models.SetLocality,
        locality_models.GivenFacts,
    )
    _, definitions = TypeAdapter.json_schemas(
        [(model.__name__, "serialization", TypeAdapter(model)) for model in answers],
        ref_template=_REFERENCE,
        schema_generator=_UntitledSchema,
    )
    schemas: JsonObject = definitions["$defs"]
    return schemas
