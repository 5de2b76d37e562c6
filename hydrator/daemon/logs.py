"""Trouble that lasts is told when it begins, changes or ends, not at every cycle. Pure."""

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import structlog

from hydrator.daemon.metrics import _describe_action, _escape_unprintable, _write_plain_traceback
from hydrator.domain.model import Publish, Withdraw
from hydrator.domain.redaction import Redactor
from hydrator.domain.text import format_count as counted
from hydrator.reconcile.audit.ledger import RepeatedFalseClaim
from hydrator.reconcile.result import CycleReport

_FAILURE_KEYS = (
    "catalogues", "publishers", "not_read_back", "unsaved", "held", "rolled_back", "withheld", "rejected",
    "rivals", "implausible_generations",
)  # fmt: skip
"""What of a cycle's line somebody has to act on, if it lasts."""


class OngoingFailures:
    """The trouble that was told last."""

    def __init__(self) -> None:
        self._logged: Mapping[str, str] = {}

    def update(self, line: Mapping[str, Any]) -> tuple[bool, list[str]]:
        """Whether *line*, a cycle's for the log, has trouble not told yet, and what of the old ended.

        The same reason with other numbers, of seconds or of polls, is the same.
        """
        now = dict(_failures_in(line))
        new = bool(now.items() - self._logged.items())
        ended = sorted(self._logged.keys() - now.keys())
        self._logged = now
        return new, ended


def _failures_in(line: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each part that fails, such as ``catalogues: rucio``, with its reason."""
    named = []
    for kind in _FAILURE_KEYS:
        found = line.get(kind)
        parts = found.items() if isinstance(found, Mapping) else [("", found)] if found else []
        named += [(f"{kind}: {name}" if name else kind, _mask_numbers(reason)) for name, reason in parts]
    return named


def _mask_numbers(reason: object) -> str:
    return re.sub(r"\d+([.,]\d+)*", "#", str(reason))


_TRACEBACK_RENDERER = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


class _RedactingFormatter(logging.Formatter):
    """Formats as another one does, and lets the finished line be looked through."""

    def __init__(self, inner: logging.Formatter, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._inner = inner
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(self._inner.format(record))


def configure_logs(
    level: str, style: str, stream: TextIO = sys.stderr, redact: Callable[[str], str] | None = None
) -> None:
    """Send all logs, also those of libraries, to *stream*.

    ``auto`` is coloured on a terminal and JSON elsewhere; NO_COLOR is obeyed.
    Tracebacks show no values of variables, and every line goes through
    *redact*: logs are read by more people than secrets are meant for.
    """
    console = style == "console" or (style == "auto" and stream.isatty())
    colors = console and stream.isatty() and not os.environ.get("NO_COLOR")
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    last: list[Any] = (
        [
            _escape_unprintable,
            structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=_write_plain_traceback),
        ]
        if console
        else [_TRACEBACK_RENDERER, structlog.processors.JSONRenderer()]
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_RedactingFormatter(formatter, redact or Redactor()))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for noisy in ("apscheduler", "httpx", "httpcore", "urllib3", "dogpile", "uvicorn"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
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


def cycle_log_fields(report: CycleReport, seconds: float) -> Mapping[str, Any]:
    """What one cycle says of itself in the log: what changed and why, and what went wrong."""
    line: dict[str, Any] = {
        "sites": len(report.evaluation.ads),
        "datasets": len(report.demand.dids),
        "seconds": round(seconds, 3),
    }
    changed = {
        f"{action.site} in {outcome.publisher}": _describe_action(action)
        for outcome in report.results
        for action in outcome.plan
        if isinstance(action, Publish | Withdraw) and not outcome.error
    }
    rolled_back = {site: one.text for site, one in report.evaluation.state.rollbacks.items()}
    withheld = report.evaluation.withheld_reasons
    wrong = {
        "catalogues": {name: why for name, why in report.catalogue_errors.items() if why},
        "publishers": {o.publisher: o.error for o in report.results if o.error},
        "unsaved": report.save_error,
        "not_read_back": {o.publisher: o.unconfirmed_sites for o in report.results if o.unconfirmed_sites},
        "left_out": {
            site: len(d.omitted_entries) for site, d in report.evaluation.drafts.items() if d.omitted_entries
        },
        "held": {s: why for s, why in report.held_reasons.items() if s not in {*rolled_back, *withheld}},
        "rolled_back": rolled_back,
        "withheld": dict(withheld),
        "rejected": {
            f"{name} in {publisher}": why
            for publisher, ads in report.rejected.items()
            for name, why in ads.items()
        },
        "rivals": dict(report.rivals),
        "implausible_generations": {
            site: f"hooks refuse {generation}: hydrator renumber {site}"
            for site, generation in report.implausible_generations.items()
        },
        "let_go": {site: len(gone) for site, gone in report.evaluation.released.items()},
        "orders": report.commands.problems,
        "clashes": report.evaluation.snapshot.case_collisions,
        "misspelt": report.evaluation.snapshot.misspelt_dids,
        "untrusted": {
            site: trust for site, trust in report.evaluation.state.audit.trust.items() if trust < 1
        },
        "refused": report.demand.rejected_texts,
    }
    return {**line, "changed": changed} | {key: value for key, value in wrong.items() if value}


def status_line(line: Mapping[str, Any]) -> str:
    """A cycle's log line for ``systemctl status``: how much, and which kinds of trouble."""
    extent = {"sites", "datasets", "seconds", "changed"}
    trouble = ", ".join(sorted(key.replace("_", " ") for key in line.keys() - extent))
    sites, datasets = counted(line["sites"], "site"), counted(line["datasets"], "dataset")
    return f"{sites}, {datasets}; {trouble or 'all is well'}"


def false_claim_log_fields(repeated_claim: RepeatedFalseClaim) -> Mapping[str, Any]:
    """Who said what, when, and by which question it came out."""
    found = repeated_claim.correction.actual_fact
    return {
        "catalogue": repeated_claim.claim.catalogue,
        "dataset": repeated_claim.claim.did,
        "site": repeated_claim.claim.site,
        "said": "AVAILABLE",
        "said_at": repeated_claim.repeated_at.isoformat(),
        "found": str(found.state) if found else "nothing",
        "found_at": repeated_claim.correction.found_at.isoformat(),
        "by": str(repeated_claim.method),
    }
