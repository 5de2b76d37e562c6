"""Types for ``--json`` that name the unit of a number, or the kind of an object's keys."""

from typing import Literal, TypeVar

from hydrator.domain.model import Did, Site

_Value = TypeVar("_Value")

Count = int
Bytes = int
Share = float
"""From 0 to 1."""
Seconds = float
UnixTime = int
StateName = Literal["AVAILABLE", "STAGING", "PARTIAL", "NEARLINE", "STUCK", "UNAVAILABLE", "UNKNOWN"]

BySite = dict[Site, _Value]
ByDid = dict[Did, _Value]
ByName = dict[str, _Value]
ByCatalogue = dict[str, _Value]
ByPublisher = dict[str, _Value]
ByState = dict[str, _Value]
