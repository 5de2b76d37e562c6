"""Catalogue plugins: entry points in the group ``classad_hydrator.catalogues``.

An entry point names a function ``(name, options, clock) -> Catalogue``. *options* are all keys of the
``[[catalogue]]`` section except ``type`` and ``name``. The function raises ValueError if an option is wrong
(docs/developers/catalogue-plugin.md).
"""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from pydantic import ValidationError

from hydrator.domain.errors import ConfigError
from hydrator.domain.ports import Catalogue, Clock
from hydrator.domain.redaction import sanitize
from hydrator.domain.text import list_problems

ENTRY_POINT_GROUP = "classad_hydrator.catalogues"
_AUTHOR_KEYS = ("Author-email", "Maintainer-email", "Author", "Maintainer")
CatalogueFactory = Callable[[str, Mapping[str, Any], Clock], Catalogue]


def installed_types() -> frozenset[str]:
    """Return the catalogue types that installed plugins add."""
    return frozenset(point.name for point in entry_points(group=ENTRY_POINT_GROUP))


def find_maker(kind: str) -> str | None:
    """Return the name of the plugin *kind*, its distribution and the author of it; None without a plugin."""
    for point in entry_points(group=ENTRY_POINT_GROUP, name=kind):
        if point.dist:
            data = point.dist.metadata
            author = next(
                (data[key] for key in _AUTHOR_KEYS if key in data), "its distribution names no author"
            )
            return sanitize(f"the plugin {kind} of {point.dist.name} {point.dist.version} ({author})")
    return None


def load_factory(kind: str) -> CatalogueFactory:
    """Return the function with which the plugin *kind* builds a catalogue.

    Raises:
        ConfigError: the plugin is not installed, or cannot be imported.
    """
    points = sorted(entry_points(group=ENTRY_POINT_GROUP, name=kind), key=lambda point: point.value)
    if len(points) != 1:
        found = (
            f"{len(points)} installed plugins have this type; uninstall all but one"
            if points
            else "no installed plugin has this type"
        )
        raise ConfigError([f"catalogue: type {kind!r}: {found}"])
    try:
        factory: CatalogueFactory = points[0].load()
    except Exception as error:
        raise ConfigError(
            [f"catalogue: type {kind!r}: {points[0].value}: {_describe_error(error)}"]
        ) from error
    return factory


def create_catalogue(
    factory: CatalogueFactory, kind: str, name: str, options: Mapping[str, Any], clock: Clock
) -> Catalogue:
    """Build the catalogue *name* with *factory*.

    Raises:
        ConfigError: the options are wrong, the plugin raises an exception, or its result is not a Catalogue.
    """
    try:
        catalogue = factory(name, options, clock)
    except ConfigError:
        raise
    except ValidationError as error:
        raise ConfigError([f"catalogue {name}: {problem}" for problem in list_problems(error)]) from error
    except Exception as error:
        raise ConfigError([f"catalogue {name} (type {kind!r}): {_describe_error(error)}"]) from error
    lacks = [one for one in ("read", "find", "close") if not callable(getattr(catalogue, one, None))]
    if lacks:
        raise ConfigError(
            [f"catalogue {name} (type {kind!r}): the catalogue has no method {' and no method '.join(lacks)}"]
        )
    return catalogue


def _describe_error(error: Exception) -> str:
    words = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
