"""Types for ``--json`` that name the unit of a number, or the kind of an object's keys, for the reference."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from hydrator.domain.model import Did, Site

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Title:
    """The unit of a number, or the kind of an object's keys."""

    text: str


Count = int
Bytes = Annotated[int, Title("bytes")]
Share = Annotated[float, Title("share, 0 to 1")]
Seconds = Annotated[float, Title("seconds")]
UnixTime = Annotated[int, Title("Unix s")]
StateName = Literal["AVAILABLE", "STAGING", "PARTIAL", "NEARLINE", "STUCK", "UNKNOWN"]

BySite = Annotated[dict[Site, _Value], Title("SITE")]
ByDid = Annotated[dict[Did, _Value], Title("DID")]
ByName = Annotated[dict[str, _Value], Title("NAME")]
ByCatalogue = Annotated[dict[str, _Value], Title("CATALOGUE")]
ByPublisher = Annotated[dict[str, _Value], Title("PUBLISHER")]
BySchedd = Annotated[dict[str, _Value], Title("SCHEDD")]
ByState = Annotated[dict[str, _Value], Title("STATE")]
