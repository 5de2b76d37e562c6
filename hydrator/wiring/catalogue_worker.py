"""The process of one catalogue: build the catalogue, and answer the daemon's requests.

The daemon sends a *recipe*: one of the functions below, or a class, with its arguments, pickled. This module
and what it imports first are light, for each worker has them; a function imports the client that it needs.
"""

import base64
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adapters.catalogue_server import CatalogueServer, describe_error
from adapters.remote import ObjectServer
from adapters.worker import Answer, Message, send_part, serve
from hydrator.domain.ports import Catalogue, FileLister
from hydrator.domain.sites import SiteMapping
from hydrator.domain.staging_ports import Stager
from hydrator.reconcile.intake import IntakeCatalogue
from hydrator.wiring import system_clock

if TYPE_CHECKING:
    from adapters.http.client import JsonClient
    from adapters.http.oauth import ClientSettings
    from adapters.rucio.session.settings import RucioSettings
    from adapters.ska.dmapi import DmapiSettings
    from adapters.ska.site_capabilities import SiteCapabilities

Recipe = Callable[[], Catalogue]
"""A function of this module with its arguments, as :func:`functools.partial`."""
Service = Callable[[], "JsonClient"]
"""The function :func:`connect` with its arguments."""


def encode_recipe(recipe: Callable[[], object], mapping: SiteMapping | None = None) -> Message:
    """Return the first request to a worker: what it builds, and for a catalogue the names of sites."""
    return {"call": "open", "recipe": base64.b64encode(pickle.dumps((recipe, mapping))).decode("ascii")}


def build_answer() -> Answer:
    """Return the function that answers the daemon; its first request has the recipe."""
    server: CatalogueServer | ObjectServer | None = None

    def answer(request: Message, send_part: Callable[[Any], None]) -> Message:
        nonlocal server
        if server is not None:
            return server.answer(request, send_part)
        try:
            recipe, mapping = pickle.loads(base64.b64decode(request["recipe"]))  # noqa: S301 - from the daemon
            bare = recipe()
            if mapping is None:
                server = ObjectServer(bare)
                return {"ok": None}
        except Exception as error:  # noqa: BLE001  (the daemon decides what to do)
            return describe_error(error)
        catalogue = bare if isinstance(bare, IntakeCatalogue) else IntakeCatalogue(bare, mapping)
        server = CatalogueServer(catalogue, bare)
        return {"ok": None}

    return answer


# -- recipes


def build_file(name: str, path: Path, default_scope: str | None) -> Catalogue:
    """Build the catalogue of a file."""
    from adapters.files.catalogue import FileCatalogue

    return FileCatalogue(name, path, system_clock, default_scope)


def build_directory(name: str, options: Mapping[str, Any]) -> Catalogue:
    """Build the catalogue of a directory.

    Raises:
        ConfigError: an option is wrong.
    """
    from adapters.files import directory
    from hydrator.config.plugins import create_catalogue

    return create_catalogue(directory.catalogue, "directory", name, options, system_clock)


def build_plugin(kind: str, name: str, options: Mapping[str, Any], mapping: SiteMapping) -> Catalogue:
    """Build the catalogue of a plugin; its secret files are read again before each query.

    Raises:
        ConfigError: the plugin is not installed, or an option is wrong.
    """
    from hydrator.config.plugins import create_catalogue, load_factory
    from hydrator.wiring.secrets import register_secrets

    catalogue = create_catalogue(load_factory(kind), kind, name, options, system_clock)
    return IntakeCatalogue(catalogue, mapping, is_plugin=True, before_query=lambda: register_secrets(options))


def connect(
    name: str,
    url: str,
    token_file: Path | None,
    account: "ClientSettings | None",
    ca_cert: Path | None,
) -> "JsonClient":
    """Build the client of an SKA service, for the catalogue *name*.

    Raises:
        ConfigError: a file with a secret or a certificate cannot be read.
    """
    from adapters.http.client import JsonClient
    from adapters.http.oauth import ClientCredentials, TokenFile

    bearer: TokenFile | ClientCredentials | None = None
    if token_file:
        bearer = TokenFile(name, token_file)
    elif account:
        bearer = ClientCredentials(name, account, system_clock)
    return JsonClient(name, url, token_source=bearer, ca_cert=ca_cert)


def build_dmapi(settings: "DmapiSettings", server: Service, capabilities: Service | None) -> Catalogue:
    """Build the catalogue of a DMAPI server.

    Raises:
        ConfigError: a file with a secret or a certificate cannot be read.
    """
    from adapters.ska.dmapi import DmapiCatalogue

    return DmapiCatalogue(settings, server(), system_clock, capabilities=_build_capabilities(capabilities))


def build_rucio(settings: "RucioSettings", mapping: SiteMapping, capabilities: Service | None) -> Catalogue:
    """Build the catalogue of a Rucio server.

    Raises:
        ConfigError: a file with a secret or a certificate cannot be read.
    """
    from adapters.rucio.catalogue import RucioCatalogue

    return RucioCatalogue(
        settings,
        system_clock,
        capabilities=_build_capabilities(capabilities),
        group_sites=mapping.shared_storage_groups,
    )


class _Steps:
    """A reporter in the worker: each step is a part of the answer."""

    def set_steps(self, count: int) -> None: ...

    def advance(self) -> None:
        send_part({"step": 1})


def build_rucio_lister(settings: "RucioSettings") -> FileLister:
    """Build the lister of files of a Rucio server."""
    from adapters.rucio.file_lists import RucioFileLister

    return RucioFileLister(settings, _Steps())


def build_rucio_stager(settings: "RucioSettings", options: Mapping[str, Any]) -> Stager:
    """Build the stager of a Rucio server; *options* are those of RuleOptions."""
    from adapters.rucio.staging import RucioStager, RuleOptions

    return RucioStager(settings, RuleOptions(**options), system_clock)


def _build_capabilities(service: Service | None) -> "SiteCapabilities | None":
    from adapters.ska.site_capabilities import SiteCapabilities

    return SiteCapabilities(service()) if service else None


if __name__ == "__main__":
    serve(build_answer)
