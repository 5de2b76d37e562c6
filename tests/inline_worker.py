"""A worker without a process: the same messages as JSON, for tests that start no process."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from adapters.worker import Message, WorkerRefused
from hydrator.wiring.catalogue_worker import build_answer


class InlineWorker:
    """In place of :class:`adapters.worker.Worker`, for workers with catalogues."""

    def __init__(self, command: Sequence[str], *, limit_bytes: int, setup: Message, **_: int) -> None:
        self._setup = setup
        self._answer: Callable[[Message, Callable[[Any], None]], Message] | None = None

    def start(self) -> None:
        if self._answer is None:
            answer = build_answer()
            if "error" in (opened := answer(self._setup, print)):
                raise WorkerRefused(opened["error"])
            self._answer = answer

    def exchange(
        self, request: Message, seconds: float, on_part: Callable[[Any], None] | None = None
    ) -> Message:
        self.start()
        assert self._answer
        assert on_part
        told: Message = json.loads(json.dumps(request))
        parts: list[Any] = []
        answer = self._answer(told, parts.append)
        for part in parts:
            on_part(json.loads(json.dumps(part)))
        copy: Message = json.loads(json.dumps(answer))
        return copy

    def close(self) -> None:
        self._answer = None
