"""What several unit tests begin with."""

import logging
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import pytest
import structlog

from hydrator.daemon.logs import configure_logs
from tests.inline_worker import InlineWorker


@pytest.fixture(autouse=True)
def catalogues_in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the workers of catalogues be in this process, except in tests that may start processes."""
    if "outside" not in request.keywords:
        monkeypatch.setattr("hydrator.wiring.catalogues.Worker", InlineWorker)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Send all logs to a stream of the test's own, and return a logger of ours.

    With the style ``console`` the stream is a terminal without colours.
    """
    root = logging.getLogger()
    before = root.handlers[:], root.level

    def log(stream: TextIO, level: str = "debug", style: str = "json") -> Any:
        if style == "console":
            monkeypatch.setenv("NO_COLOR", "1")
            monkeypatch.setattr(stream, "isatty", lambda: True)
        configure_logs(level, stream)
        return structlog.get_logger("hydrator")

    yield log
    root.handlers[:], root.level = before[0], before[1]
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
