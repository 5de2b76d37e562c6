"""An object in a worker, such as a stager: each call of a method is an exchange with the worker.

Arguments come from the daemon and are pickled. A result comes from a process with foreign code: it is
unpickled only into values of the domain, whose constructors do nothing else.
"""

import base64
import io
import pickle
from collections.abc import Callable
from typing import Any

from adapters.catalogue_client import raise_error
from adapters.catalogue_server import describe_error
from adapters.worker import Message, Worker, WorkerFailed, WorkerRefused
from hydrator.domain.errors import CatalogueGarbled, HydratorError
from hydrator.domain.ports import StepReporter

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The longest result of a call, in one line: the list of 200,000 files, or the rules of an account."""
_MODULES = ("hydrator.domain.model", "hydrator.domain.staging_ports", "hydrator.domain.errors")
_NAMES = frozenset(
    {("datetime", "datetime"), ("datetime", "timedelta"), ("datetime", "timezone"), ("builtins", "frozenset")}
)


class _Unpickler(pickle.Unpickler):
    """An unpickler for values of the domain."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        found = super().find_class(module, name) if module in _MODULES or (module, name) in _NAMES else None
        is_own = getattr(found, "__module__", module) == module
        if found is None or not is_own:
            raise pickle.UnpicklingError(f"{module}.{name} is not a value of the domain")
        return found


def decode(text: str) -> Any:  # noqa: ANN401
    """Return the value that a worker sent.

    Raises:
        ValueError: it is not one.
    """
    try:
        return _Unpickler(io.BytesIO(base64.b64decode(text, validate=True))).load()
    except Exception as error:
        raise ValueError(f"an answer cannot be read: {type(error).__name__}") from error


class ObjectServer:
    """The answers of *target* in its worker."""

    def __init__(self, target: object) -> None:
        self._target = target

    def answer(self, request: Message, _send_part: Callable[[Any], None]) -> Message:
        """Call the method of the request."""
        try:
            args, kwargs = pickle.loads(base64.b64decode(request["args"]))  # noqa: S301 - from the daemon
            result = getattr(self._target, request["call"])(*args, **kwargs)
        except HydratorError as error:
            return {"raised": base64.b64encode(pickle.dumps(error)).decode("ascii")}
        except Exception as error:  # noqa: BLE001  (the daemon decides what to do)
            return describe_error(error)
        return {"ok": base64.b64encode(pickle.dumps(result)).decode("ascii")}


class RemoteObject:
    """An object whose methods run in *worker*; to be used as the port that it implements.

    Args:
        name: the catalogue's name.
        worker: the worker.
        quiet_seconds: the longest time without a line of the worker.
        fail: returns the error of a call, by the method's name, whose worker ended with a reason.
        reporter: gets the steps that the object reports.
    """

    def __init__(
        self,
        name: str,
        worker: Worker,
        quiet_seconds: float,
        fail: Callable[[str, str], HydratorError],
        reporter: StepReporter | None = None,
    ) -> None:
        self.name = name
        self._worker = worker
        self._quiet_seconds = quiet_seconds
        self._fail = fail
        self._reporter = reporter

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return a function that calls *method* in the worker."""
        if method.startswith("_"):
            raise AttributeError(method)
        return lambda *args, **kwargs: self._call(method, args, kwargs)

    def _call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        text = base64.b64encode(pickle.dumps((args, kwargs))).decode("ascii")
        try:
            answer = self._worker.exchange({"call": method, "args": text}, self._quiet_seconds, self._receive)
        except (WorkerFailed, WorkerRefused) as failure:
            raise self._fail(method, str(failure)) from None
        if "error" in answer:
            raise_error(self.name, answer["error"])
        try:
            value = decode(answer.get("raised") or answer["ok"])
        except (ValueError, LookupError) as error:
            raise CatalogueGarbled(self.name, f"the answer of its worker: {error}") from None
        if "raised" in answer and isinstance(value, HydratorError):
            raise value
        return value

    def _receive(self, part: Message) -> None:
        if "step" in part and self._reporter:
            self._reporter.advance()
