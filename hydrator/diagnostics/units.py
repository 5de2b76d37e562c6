"""Types for ``--json`` whose JSON Schema shows the unit of a number, or the kind of an object's keys."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from hydrator.domain.model import Did, Site

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Title:
    """The title of a value in its JSON Schema: the unit of a number, or the kind of an object's keys."""

    text: str

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's hook
        return {**handler(schema), "title": self.text}


Count = Annotated[int, Field(ge=0)]
Bytes = Annotated[int, Field(ge=0), Title("bytes")]
Share = Annotated[float, Field(ge=0, le=1), Title("share, 0 to 1")]
Seconds = Annotated[float, Title("seconds")]
UnixTime = Annotated[int, Field(ge=0), Title("Unix s")]
StateName = Literal["AVAILABLE", "STAGING", "PARTIAL", "NEARLINE", "STUCK", "UNKNOWN"]
LocalityMode = Literal["auto", "require", "wait", "prefer"]

BySite = Annotated[dict[Site, _Value], Title("SITE")]
ByDid = Annotated[dict[Did, _Value], Title("DID")]
ByName = Annotated[dict[str, _Value], Title("NAME")]
ByCatalogue = Annotated[dict[str, _Value], Title("CATALOGUE")]
ByPublisher = Annotated[dict[str, _Value], Title("PUBLISHER")]
BySchedd = Annotated[dict[str, _Value], Title("SCHEDD")]
ByState = Annotated[dict[str, _Value], Title("STATE")]
