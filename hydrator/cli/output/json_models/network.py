"""Model of ``network``."""

from typing import Annotated

from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing.TypedDict

from hydrator.diagnostics.units import ByName, Count, Title, UnixTime

BytesPerSecond = Annotated[float, Title("bytes/s")]


class LinkJson(TypedDict):
    """The rate from one site to another."""

    source: str
    """site with the data"""
    destination: str
    """site of the jobs"""
    bytes_per_second: BytesPerSecond | None
    """rate for all readers together; null: unknown"""
    origin: str | None
    """source of this figure; null: unknown"""
    measured_at: UnixTime | None
    """end of the newest sample; null: not measured"""
    samples: Count
    """samples behind the figure"""
    why_unknown: str
    """reason why the rate is unknown; empty if it is known"""


class RateSourceJson(TypedDict):
    """A source of measured rates."""

    source: str
    """its name"""
    read_at: UnixTime
    """its last query"""
    failures: ByName[str]
    """schedds and parts without an answer, and why"""


class NetworkJson(TypedDict):
    """Rates between sites."""

    links: list[LinkJson]
    """every pair of sites"""
    sources: list[RateSourceJson]
    """sources of measured rates that the daemon has queried"""
