"""Logs (structlog): format of all log lines, and the fields and failures in a cycle's log line."""

import io
import logging
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog
from structlog.typing import ExcInfo

from hydrator.domain.model import Publish, Withdraw
from hydrator.domain.redaction import escape_unprintable, escape_unprintable_tree, redact
from hydrator.domain.text import format_count
from hydrator.reconcile.result import CycleReport

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
        failures |= {f"{kind}: {name}" if name else kind: _mask_numbers(reason) for name, reason in parts}
    return failures


def _mask_numbers(reason: object) -> str:
    return re.sub(r"\d+([.,]\d+)*", "#", str(reason))


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


class _RedactingFormatter(logging.Formatter):
    """A formatter that removes secrets from the finished line of another formatter."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return redact(self._inner.format(record))


def configure_logs(level: str, style: str, stream: TextIO = sys.stderr) -> None:
    """Send all logs, also those of libraries, to *stream*.

    Format ``auto`` means colours on a terminal (not with NO_COLOR) and JSON elsewhere.
    Tracebacks show no values of variables, and no line has a secret, since more people
    read logs than may see secrets.
    """
    is_console = style == "console" or (style == "auto" and stream.isatty())
    colors = is_console and stream.isatty() and not os.environ.get("NO_COLOR")
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
        ],
    )
    _configure_root_logger(level, stream, _RedactingFormatter(formatter))
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


def cycle_log_fields(report: CycleReport, seconds: float) -> Mapping[str, Any]:
    """Return the fields of a cycle's log line: counts of the cycle, changes with reasons, and problems."""
    changed = {
        f"{action.site} in {result.publisher}": _describe_action(action)
        for result in report.results
        for action in result.plan
        if isinstance(action, Publish | Withdraw) and not result.error
    }
    problems = {**_publish_problems(report), **_data_problems(report)}
    return {
        "sites": len(report.evaluation.ads),
        "datasets": len(report.demand.dids),
        "seconds": round(seconds, 3),
        "changed": changed,
    } | {key: value for key, value in problems.items() if value}


def _publish_problems(report: CycleReport) -> dict[str, Any]:
    return {
        "catalogues": {name: why for name, why in report.catalogue_errors.items() if why},
        "publishers": {r.publisher: r.error for r in report.results if r.error},
        "unsaved": report.save_error,
        "not_read_back": {r.publisher: r.unconfirmed_sites for r in report.results if r.unconfirmed_sites},
        "rejected": {
            f"{name} in {publisher}": why
            for publisher, ads in report.rejected.items()
            for name, why in ads.items()
        },
        "rivals": dict(report.rivals),
        "invalid_commands": report.commands.problems,
    }


def _data_problems(report: CycleReport) -> dict[str, Any]:
    evaluation = report.evaluation
    withheld = evaluation.withheld_reasons
    return {
        "left_out": {
            site: len(draft.omitted_entries)
            for site, draft in evaluation.drafts.items()
            if draft.omitted_entries
        },
        "held": {s: why for s, why in report.held_reasons.items() if s not in withheld},
        "withheld": dict(withheld),
        "released": {site: len(dids) for site, dids in evaluation.released.items()},
        "case_collisions": evaluation.snapshot.case_collisions,
        "misspelt": evaluation.snapshot.misspelt_dids,
        "refused_demand": report.demand.rejected_texts,
        "withheld_keys": report.demand.withheld_keys,
    }


def _describe_action(action: Publish | Withdraw) -> str:
    """Return the action on an ad, with its generation and the reason."""
    if isinstance(action, Withdraw):
        return f"withdrawn: {action.reason}"
    return f"generation {action.ad.generation}: {action.reason}"


def status_line(fields: Mapping[str, Any]) -> str:
    """Return the line for ``systemctl status``: the numbers of sites and datasets, and the problems."""
    extent = {"sites", "datasets", "seconds", "changed"}
    problems = ", ".join(sorted(key.replace("_", " ") for key in fields.keys() - extent))
    sites, datasets = format_count(fields["sites"], "site"), format_count(fields["datasets"], "dataset")
    return f"{sites}, {datasets}; {problems or 'all is well'}"
