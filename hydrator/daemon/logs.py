"""Logs (structlog): format of all log lines, and the fields and failures in a cycle's log line."""

import io
import logging
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from itertools import islice
from typing import Any, Final, TextIO

import structlog
from structlog.typing import ExcInfo

from hydrator.domain.redaction import escape_unprintable, escape_unprintable_tree, redact
from hydrator.domain.text import format_count
from hydrator.reconcile.view import ActionView, CycleView

_FAILURE_KEYS = (
    "catalogues", "publishers", "not_read_back", "unsaved", "held", "withheld", "rejected",
    "rivals",
)  # fmt: skip
"""Fields of a cycle's line that an operator must act on if they last."""


def ongoing_failures(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return each failing part in a cycle's log *fields*, such as ``catalogues: rucio``, with the reason.

    Numbers in a reason become ``#``. So a reason in which only a number changed is not a new failure.
    """
    failures: dict[str, str] = {}
    for kind in _FAILURE_KEYS:
        value = fields.get(kind)
        parts = value.items() if isinstance(value, Mapping) else [("", value)] if value else []
        for name, reason in parts:
            failures[f"{kind}: {name}" if name else kind] = re.sub(r"\d+([.,]\d+)*", "#", str(reason))
    return failures


def _escape_unprintable(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters in a log line for a console: a terminal would execute them."""
    traceback = {key: event.pop(key) for key in ("exc_info", "stack_info") if key in event}
    return {**escape_unprintable_tree(dict(event)), **traceback}


def _write_plain_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    """Write the traceback with control characters escaped."""
    buffer = io.StringIO()
    structlog.dev.plain_traceback(buffer, exc_info)
    stream.write(escape_unprintable(buffer.getvalue(), "\n"))


_TRACEBACK_RENDERER = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def _redact_line(_: object, __: str, line: Any) -> str:  # noqa: ANN401 - structlog's own
    """Remove secrets from the finished line."""
    return redact(line)


def configure_logs(level: str, stream: TextIO = sys.stderr) -> None:
    """Send all logs, also those of libraries, to *stream*.

    A line is text with colours on a terminal (without them if NO_COLOR is set), and JSON elsewhere.
    Tracebacks show no values of variables, and no line has a secret, since more people
    read logs than may see secrets.
    """
    is_console = stream.isatty()
    colors = is_console and not os.environ.get("NO_COLOR")
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *_renderers(is_console=is_console, colors=colors),
            _redact_line,
        ],
    )
    _configure_root_logger(level, stream, formatter)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _renderers(*, is_console: bool, colors: bool) -> list[Any]:
    if not is_console:
        return [_TRACEBACK_RENDERER, structlog.processors.JSONRenderer()]
    console = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=_write_plain_traceback)
    return [_escape_unprintable, console]


def _configure_root_logger(level: str, stream: TextIO, formatter: logging.Formatter) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for noisy in ("apscheduler", "httpx", "httpcore", "urllib3", "dogpile", "uvicorn"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def cycle_log_fields(view: CycleView, seconds: float) -> Mapping[str, Any]:
    """Return the fields of a cycle's log line: counts of the cycle, changes with reasons, and problems."""
    failed = {one.name for one in view.publishers if one.error}
    changed = {
        f"{row.site} in {row.publisher}": _describe_action(row)
        for row in view.plan
        if row.action in {"publish", "withdraw"} and row.publisher not in failed
    }
    problems = _list_problems(view)
    return {
        "sites": sum(site.generation is not None for site in view.sites),
        "datasets": view.demand.datasets + view.demand.kept_datasets,
        "seconds": round(seconds, 3),
        "changed": changed,
    } | {key: value for key, value in problems.items() if value}


def _list_problems(view: CycleView) -> dict[str, Any]:
    """Return the kinds of problems, each with its details; without details there is no such problem."""
    sites, demand = view.sites, view.demand
    return {
        "catalogues": {one.name: one.error for one in view.catalogues if one.error},
        "publishers": {one.name: one.error for one in view.publishers if one.error},
        "unsaved": view.save_error,
        "not_read_back": {one.name: one.not_read_back for one in view.publishers if one.not_read_back},
        "rejected": {
            f"{name} in {one.name}": why for one in view.publishers for name, why in one.rejected.items()
        },
        "rivals": {one.name: one.rival for one in view.publishers if one.rival},
        "invalid_commands": view.invalid_commands,
        "left_out": {one.site: one.left_out.datasets for one in sites if one.left_out},
        "held": {one.site: one.held for one in sites if one.held and not one.withheld},
        "withheld": {one.site: one.held for one in sites if one.withheld},
        "case_collisions": demand.clashes,
        "misspelt": demand.misspelt,
        "refused_demand": _limit(demand.refused),
        "wrong_keys": _limit(demand.wrong_keys),
    }


MAX_LOGGED_TEXTS: Final = 20
"""Texts of one kind in a cycle's line: a user can write any number of them into jobs."""


def _limit(texts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first MAX_LOGGED_TEXTS of *texts*, with the number of the others."""
    more = len(texts) - MAX_LOGGED_TEXTS
    return texts if more <= 0 else {**dict(islice(texts.items(), MAX_LOGGED_TEXTS)), "more": more}


def _describe_action(row: ActionView) -> str:
    """Return the action on an ad, with its generation and the reason."""
    return f"withdrawn: {row.why}" if row.action == "withdraw" else f"generation {row.generation}: {row.why}"


def status_line(fields: Mapping[str, Any]) -> str:
    """Return the line for ``systemctl status``: the numbers of sites and datasets, and the problems."""
    extent = {"sites", "datasets", "seconds", "changed"}
    problems = ", ".join(sorted(key.replace("_", " ") for key in fields.keys() - extent))
    sites, datasets = format_count(fields["sites"], "site"), format_count(fields["datasets"], "dataset")
    return f"{sites}, {datasets}; {problems or 'all is well'}"
