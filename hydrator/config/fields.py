"""Types that the sections of the configuration share, and their conversion to dataclasses."""

from datetime import timedelta
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


def _require_printable(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("must be a name with only printable characters")
    return text


SiteName = Annotated[str, AfterValidator(_require_printable)]
HostName = Annotated[str, Field(pattern=r"^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$", max_length=255)]
Url = Annotated[str, Field(pattern=r"^https?://[^\s]+$")]


class Section(BaseModel):
    """A frozen table of the configuration that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


V = TypeVar("V")


def build_from_section(dataclass: type[V], section: BaseModel, **others: Any) -> V:  # noqa: ANN401
    """Build a *dataclass* from the keys of *section* that are its fields, and from *others*: more fields.

    A key such as ``timeout_seconds`` becomes the duration ``timeout``.
    """
    durations = {
        key.removesuffix("_seconds"): timedelta(seconds=value)
        for key, value in section
        if key.endswith("_seconds") and value is not None
    }
    fields: dict[str, Any] = vars(dataclass)["__dataclass_fields__"]
    return dataclass(
        **{key: value for key, value in {**dict(section), **durations}.items() if key in fields} | others
    )
