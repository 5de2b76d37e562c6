"""Types for ``--json`` that name the unit of a number, or the kind of an object's keys."""

from typing import Annotated, Any, Final, TypeVar

from hydrator.domain.model import Did
from hydrator.domain.untrusted import nearest_moment

_Value = TypeVar("_Value")

Count = int
Bytes = int
Share = float
"""From 0 to 1."""
Seconds = float

TEXT_TIMES: Final = "times as RFC 3339 text"
"""The pydantic context of ``--json``; the state and the HTTP API have the numbers."""


class _TimeMark:
    """A mark of Unix seconds; pydantic writes them as ``2026-11-21T12:00:00Z`` in the context TEXT_TIMES."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:  # noqa: ANN401 - pydantic's own
        """Build the schema of the numbers, which pydantic asks for."""
        from pydantic_core import core_schema  # only here: workers load this module without pydantic

        writing = core_schema.plain_serializer_function_ser_schema(
            _write_time, info_arg=True, when_used="json-unless-none"
        )
        return {**handler(source), "serialization": writing}


def _write_time(seconds: int, info: Any) -> str | int:  # noqa: ANN401 - pydantic's SerializationInfo
    return f"{nearest_moment(seconds):%Y-%m-%dT%H:%M:%SZ}" if info.context == TEXT_TIMES else seconds


UnixTime = Annotated[int, _TimeMark]

ByDid = dict[Did, _Value]
ByName = dict[str, _Value]
ByPublisher = dict[str, _Value]
ByState = dict[str, _Value]
