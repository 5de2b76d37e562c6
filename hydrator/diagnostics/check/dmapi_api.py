"""Compare the calls that the DMAPI adapter uses with a server's own description (``/openapi.json``)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hydrator.diagnostics.check.findings import Finding, Level, advice, failure, ok, warning

_REQUIRED_PATHS = (
    ("/data/list", ()),
    ("/data/locate/{}/{}", ("sort", "limit")),
    ("/metadata/{}/{}", ("plugin",)),
)
"""For each path, the parameters of the adapter's GET request. A live server answered all these requests."""
_PARAMETER = re.compile(r"\{[^}]*\}")
_VERSION = re.compile(r"\A(/api)?/v\d+(?=/)")
_SUBJECT = "dmapi"


def dmapi_findings(openapi: Any, list_path: str = "") -> Iterator[Finding]:  # noqa: ANN401 - JSON
    """Compare a DMAPI server's description with the calls of the adapter.

    Args:
        openapi: the content of the server's ``/openapi.json``.
        list_path: the configured path that lists a namespace; empty if unset. The project has not yet seen a
            live server with this path. So a server without this path fails the check only if the
            path is configured.

    Returns:
        One finding for each path: ``fail`` for a required path that is missing.
    """
    paths = openapi.get("paths") if isinstance(openapi, Mapping) else None
    if not isinstance(paths, Mapping) or not paths:
        yield failure(
            _SUBJECT,
            "the server's openapi.json describes no paths",
            "check that the URL belongs to a DMAPI server",
        )
        return
    path_items = {
        _normalize_path(str(path)): item for path, item in paths.items() if isinstance(item, Mapping)
    }
    for path, parameters in _REQUIRED_PATHS:
        yield from _check_path(path, parameters, path_items.get(path))
    yield _check_list_path(list_path, path_items)


def _check_path(
    path: str, parameters: tuple[str, ...], path_item: Mapping[str, Any] | None
) -> Iterator[Finding]:
    call = path_item.get("get") if path_item else None
    if not isinstance(call, Mapping):
        todo = "the adapter does not support this DMAPI release: report it to classad-hydrator's maintainers"
        yield failure(_SUBJECT, f"the server has no GET {path}, which the adapter needs", todo)
        return
    parameter_list = call.get("parameters")
    names = (
        {each.get("name") for each in parameter_list if isinstance(each, Mapping)}
        if parameter_list
        else set()
    )
    missing = [name for name in parameters if names and name not in names]
    if missing:
        yield warning(
            _SUBJECT,
            f"GET {path} does not accept {', '.join(missing)}, which the adapter sends",
            "answers may be truncated or have another format: compare"
            " docs/reference/catalogues/catalogue-dmapi.md",
        )
    else:
        yield ok(_SUBJECT, f"the server has GET {path}")


def _check_list_path(list_path: str, path_items: Mapping[str, Any]) -> Finding:
    path = _normalize_path(list_path or "/data/list/{namespace}")
    has_path = isinstance(path_items.get(path, {}).get("get"), Mapping)
    if has_path and list_path:
        return ok(_SUBJECT, f"the server has GET {path}, as list_path says")
    if has_path:
        todo = 'set list_path = "/data/list/{namespace}", so that demand.patterns can find datasets'
        return advice(
            _SUBJECT,
            f"the server has GET {path}; classad-hydrator only assumed that a DMAPI has this path",
            todo,
        )
    level = Level.FAIL if list_path else Level.ADVICE
    todo = "find the path in openapi.json, then set list_path" if list_path else "leave list_path unset"
    return Finding(
        level,
        _SUBJECT,
        f"the server has no GET {path}; classad-hydrator only assumed that a DMAPI has this path",
        todo,
    )


def _normalize_path(path: str) -> str:
    """Return *path* without a leading version and without the names of its parameters."""
    return _PARAMETER.sub("{}", _VERSION.sub("", path))
