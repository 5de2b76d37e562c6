"""What several unit tests begin with."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.inline_worker import InlineWorker


@pytest.fixture(autouse=True)
def catalogues_in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the workers of catalogues be in this process, except in tests that may start processes."""
    if "outside" not in request.keywords:
        monkeypatch.setattr("hydrator.wiring.catalogues.Worker", InlineWorker)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others may enter: pytest's own are closed again whenever another pytest starts."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)
