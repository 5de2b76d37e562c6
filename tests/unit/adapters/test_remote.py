"""An object in a worker: its results and errors, and answers that are no values of the domain."""

import base64
import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from adapters.remote import ObjectServer, RemoteObject, decode
from adapters.worker import Message, WorkerFailed, summarize_stderr
from hydrator.domain.bugs import WorkerBug
from hydrator.domain.errors import CatalogueError, CatalogueUnreachable, TooManyFiles
from hydrator.domain.model import DatasetFile, Did
from hydrator.domain.staging_ports import RefusalKind, StagingRefused
from tests.factories import L1


class Lister:
    def list_files(self, dids, *, max_files):
        if max_files == 0:
            raise StagingRefused("rucio", "there is no room", RefusalKind.QUOTA)
        if max_files == 1:
            raise KeyError("a secret name".upper())
        return {Did(did): (DatasetFile("lofar:f", 3, {"D": ("https://x",)}),) for did in dids} | {
            Did("lofar:big"): TooManyFiles("rucio", max_files)
        }


class Direct:
    """A worker in this process."""

    def __init__(self, change: Callable[[Message], Message] = lambda answer: answer) -> None:
        self._change = change

    def start(self) -> None: ...
    def close(self) -> None: ...

    def exchange(self, request: Message, seconds: float, on_part: Any = None) -> Message:
        on_part({"step": 1})
        return self._change(ObjectServer(Lister()).answer(request, on_part))


class Steps:
    def __init__(self) -> None:
        self.count = 0

    def set_steps(self, count: int) -> None: ...

    def advance(self) -> None:
        self.count += 1


def remote(worker: Direct, reporter: Steps | None = None) -> Any:
    return RemoteObject(
        "rucio", worker, 60, lambda _, reason: CatalogueUnreachable("rucio", reason), reporter
    )


def test_result_and_errors_are_those_of_the_object():
    steps = Steps()
    lister = remote(Direct(), steps)
    files = lister.list_files({L1}, max_files=7)
    assert files[L1] == (DatasetFile("lofar:f", 3, {"D": ("https://x",)}),)
    assert str(files["lofar:big"]) == str(TooManyFiles("rucio", 7))
    assert steps.count == 1
    with pytest.raises(StagingRefused, match="there is no room") as refused:
        lister.list_files({L1}, max_files=0)
    assert refused.value.kind is RefusalKind.QUOTA
    with pytest.raises(WorkerBug, match=r"KeyError at adapters/test_remote\.py") as bug:
        lister.list_files({L1}, max_files=1)
    assert "A SECRET NAME" not in str(bug.value)


def test_call_whose_worker_ends_has_the_error_of_its_kind():
    def end(_: Message) -> Message:
        raise WorkerFailed("it was killed")

    with pytest.raises(CatalogueUnreachable, match="it was killed"):
        remote(Direct(end)).list_files({L1}, max_files=7)


class Evil:
    def __reduce__(self):
        return os.system, ("false",)


IMPORTED = b"\x80\x04\x8c\x15hydrator.domain.model\x8c\nre.compile\x93."
"""The pickle of a function that a module of the domain imports."""


@pytest.mark.parametrize(
    "octets", [*map(pickle.dumps, (Evil(), os.getcwd, eval, pickle.loads, [Steps])), IMPORTED, b"", b"x"]
)
def test_answer_that_is_no_value_of_the_domain_is_refused(octets):
    text = base64.b64encode(octets).decode()
    with pytest.raises(ValueError, match="cannot be read"):
        decode(text)
    changed = remote(Direct(lambda _: {"ok": text}))
    with pytest.raises(CatalogueError, match="the answer of its worker"):
        changed.list_files({L1}, max_files=7)


def test_stderr_summary_is_the_last_error_line_if_any():
    lines = "11/21/26 02:00:00 ERROR: broken\n11/21/26 02:00:01 SECMAN: chatter\n"
    assert summarize_stderr(lines) == "ERROR: broken"
    assert summarize_stderr("one\n\ntwo\n") == "two"
    assert summarize_stderr("") == ""
