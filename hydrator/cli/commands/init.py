"""``hydrator init``: a first configuration, from the user's answers.

Every prompt has an option; without a terminal, or with --yes, the command does not prompt.
It queries no service: ``hydrator check`` tests the settings at the pool and the catalogue.
"""

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, command_of, number_option
from hydrator.cli.output.new_files import write_new_file
from hydrator.cli.output.printing import print_problems
from hydrator.domain.errors import ConfigError

DEFAULT_STATE_DIR: Final = "/var/lib/classad-hydrator"


CatalogueKind = Literal["file", "rucio", "dmapi"]
"""Types of catalogue that ``hydrator init`` can configure; docs/ has a page on each further type."""
LoginMethod = Literal["userpass", "token", "oidc", "x509", "none"]
"""Method by which the daemon logs in to the catalogue."""

_LOGIN_METHODS: Mapping[str, Sequence[str]] = {
    "file": ("none",),
    "rucio": ("userpass", "token", "oidc", "x509"),
    "dmapi": ("token", "oidc", "none"),
}
_REQUIRED_KEYS: Mapping[str, Sequence[str]] = {
    "file": ("path",),
    "rucio": ("url", "account"),
    "dmapi": ("url",),
    "userpass": ("username", "password_file"),
    "token": ("token_file",),
    "oidc": ("token_url", "client_id", "client_secret_file"),
    "x509": ("client_cert",),
    "none": (),
}
"""The keys of [[catalogue]] that ``hydrator init`` asks for, by type and by login method."""
_OPTIONAL_KEYS: Mapping[str, Sequence[str]] = {
    "rucio": ("ca_cert",),
    "dmapi": ("ca_cert", "site_capabilities"),
    "x509": ("client_key",),
}
"""Keys for which ``hydrator init`` has options, but does not ask."""
_LINK_QUESTION = "What jobs at other sites can together read from one site, in Gb/s"
_LINK_OPTION = number_option(float, 0.001, 100_000, "Gb/s", f"{_LINK_QUESTION}; asked if not given.")
_WHEN_IT_PAYS = (
    "it pays where links are busy: bytes of a job / uplink (bytes/s) / seconds it computes x cores of the"
    " pool / 12: at 0.05 little changes, at 0.5 a pool is 1.4 times as fast; see docs/operators/placement.md"
)


@dataclass(frozen=True)
class InitOptions:
    """Options of ``hydrator init``.

    An option that sets a key of [[catalogue]] has the name of this key, and its help is the question.
    """

    config: Annotated[
        Path, typer.Option("--config", "-c", envvar="HYDRATOR_CONFIG", help="The file to write.")
    ] = DEFAULT_CONFIG_PATH
    collector: Annotated[
        str | None, typer.Option(help="Host or host:port; default: from HTCondor's configuration.")
    ] = None
    condor_config: Annotated[
        Path | None, typer.Option(help="HTCondor configuration file that only the daemon reads.")
    ] = None
    token_directory: Annotated[Path | None, typer.Option(help="Folder of the daemon's IDTOKEN alone.")] = None
    site_attribute: Annotated[
        str | None, typer.Option(help="Slot attribute with the site; default: GLIDEIN_Site and similar.")
    ] = None
    catalogue: Annotated[CatalogueKind | None, typer.Option(help="Type of the catalogue.")] = None
    path: Annotated[str | None, typer.Option(help="For file: the list of datasets, TOML or JSON.")] = None
    url: Annotated[str | None, typer.Option(help="For rucio and dmapi: the URL; dmapi's has /api/v1.")] = None
    account: Annotated[str | None, typer.Option(help="For rucio: the account.")] = None
    auth: Annotated[
        LoginMethod | None, typer.Option(help="Login at the catalogue; default: by the options below.")
    ] = None
    username: Annotated[str | None, typer.Option(help="For userpass: the user name.")] = None
    password_file: Annotated[str | None, typer.Option(help="For userpass: file with the password.")] = None
    token_file: Annotated[str | None, typer.Option(help="For token: file of the token; you renew it.")] = None
    token_url: Annotated[str | None, typer.Option(help="For oidc: the provider's token URL.")] = None
    client_id: Annotated[str | None, typer.Option(help="For oidc: the client's id.")] = None
    client_secret_file: Annotated[str | None, typer.Option(help="For oidc: file with the secret.")] = None
    client_cert: Annotated[str | None, typer.Option(help="For x509: file with certificate or proxy.")] = None
    client_key: Annotated[
        str | None, typer.Option(help="For x509: file with the key, if the certificate's file has none.")
    ] = None
    ca_cert: Annotated[
        str | None, typer.Option(help="For rucio and dmapi: file with the CA certificate for the server.")
    ] = None
    site_capabilities: Annotated[
        str | None, typer.Option(help="For dmapi: URL of SKA's Site Capabilities, to map storage to sites.")
    ] = None
    gbit_per_second: Annotated[float | None, _LINK_OPTION] = None
    state_dir: Annotated[str, typer.Option(help="Folder of what must survive a restart.")] = DEFAULT_STATE_DIR
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask no questions.")] = False

    @property
    def is_quiet(self) -> bool:
        """True if the command may not ask questions."""
        return self.yes or not sys.stdin.isatty()

    @property
    def catalogue_values(self) -> dict[str, str]:
        """The options that set keys of [[catalogue]], with the values that the user gave."""
        keys = {key for each in (*_REQUIRED_KEYS.values(), *_OPTIONAL_KEYS.values()) for key in each}
        return {key: value for key, value in vars(self).items() if key in keys and value}


def init(options: InitOptions) -> None:
    """Write a first configuration, with answers or by options.

    The command never overwrites a file.
    `hydrator check` then queries the pool and the catalogue, and lists what the installation needs.
    """
    from hydrator.config import parse

    config = options.config
    if config.exists():
        raise ConfigError([f"init: {config} exists and is not overwritten: name another file with -c"])
    text = format_toml(_build_sections(options))
    parse(tomllib.loads(text), folder=config.parent.absolute(), origin="init")
    _write_config(config, text)
    print(f"wrote {config}")
    print_problems(_WHEN_IT_PAYS)
    print_problems(f"next: hydrator check -c {config}, then hydrator plan -c {config}")


init_command = command_of(InitOptions, init)


def _build_sections(options: InitOptions) -> dict[str, Any]:
    """Build the sections of the configuration from *options*, and from the user's answers.

    Raises:
        ConfigError: a value is missing and the command is quiet, or an option does not fit the catalogue.
    """
    pool = {
        "collector": options.collector,
        "config_file": options.condor_config,
        "token_directory": options.token_directory,
    }
    site_attribute, state_dir = options.site_attribute, options.state_dir
    sections: dict[str, Any] = {
        "daemon": {"state_dir": state_dir},
        "htcondor": {key: str(value) for key, value in pool.items() if value is not None},
        "sites": {"slot_attributes": [site_attribute]} if site_attribute else {},
        **_build_catalogue_sections(options),
    }
    gbit_per_second = options.gbit_per_second
    if gbit_per_second is None and not options.is_quiet:
        gbit_per_second = typer.prompt(_LINK_QUESTION, default=1.0, value_proc=_LINK_OPTION.parser)
    if gbit_per_second is not None:
        sections["network"] = {"default_gbit_per_second": gbit_per_second}
    if state_dir != DEFAULT_STATE_DIR:  # another daemon may publish its ads in the default folder
        sections["publish.file"] = {"directory": f"{state_dir.rstrip('/')}/ads"}
    return sections


def _build_catalogue_sections(options: InitOptions) -> dict[str, Any]:
    """Build the section [[catalogue]], and [site_capabilities] if the user gave its URL.

    A URL without --catalogue means Rucio. Without --auth, the other options determine the login method. If no
    method or several methods fit these options, ask for the method.
    """
    given_values = options.catalogue_values
    kind: str | None = options.catalogue or ("rucio" if options.url else None)
    kind = kind or _ask(options, "catalogue", f"the catalogue ({', '.join(_LOGIN_METHODS)})")
    if kind not in _LOGIN_METHODS:
        raise ConfigError([f"init: --catalogue {kind}: use one of {', '.join(_LOGIN_METHODS)}"])
    methods = _LOGIN_METHODS[kind]
    listed_methods = ", ".join(methods)
    candidates = [one for one in methods if given_values.keys() & _REQUIRED_KEYS[one]] or methods
    method = options.auth or (candidates[0] if len(candidates) == 1 else None)
    method = method or _ask(options, "auth", f"how the daemon logs in to the catalogue ({listed_methods})")
    if method not in methods:
        raise ConfigError([f"init: --auth {method}: --catalogue {kind} supports {listed_methods}"])
    required_keys = (*_REQUIRED_KEYS[kind], *_REQUIRED_KEYS[method])
    optional_keys = (*_OPTIONAL_KEYS.get(method, ()), *_OPTIONAL_KEYS.get(kind, ()))
    if foreign_keys := given_values.keys() - {*required_keys, *optional_keys}:
        by = f" with --auth {method}" if len(methods) > 1 else ""
        names = ", ".join(map(_option_name, sorted(foreign_keys)))
        raise ConfigError([f"init: {names}: not valid with --catalogue {kind}{by}"])
    values = {key: given_values.pop(key, "") or _ask(options, key) for key in required_keys} | given_values
    capabilities = values.pop("site_capabilities", None)
    auth = {"auth": method} if kind == "rucio" and method != "userpass" else {}
    sections: dict[str, Any] = {"catalogue": [{"type": kind, "name": kind, **auth, **values}]}
    if capabilities:  # the daemon uses the same credentials at Site Capabilities and at the catalogue
        identity = {key: values[key] for key in (*_REQUIRED_KEYS[method], "ca_cert") if key in values}
        sections["site_capabilities"] = {"url": capabilities, **identity}
    return sections


def _ask(options: InitOptions, key: str, question: str | None = None) -> str:
    """Ask the user for the value of the option *key*, with its help as the question.

    Raises:
        ConfigError: the command is quiet; the message names the option.
    """
    if question is None:
        help_text = signature(InitOptions).parameters[key].annotation.__metadata__[0].help
        question = help_text.partition(": ")[2].removesuffix(".")
    if options.is_quiet:
        raise ConfigError([f"init: give the option {_option_name(key)}: {question}"])
    return str(typer.prompt(question[0].upper() + question[1:])).strip()


def _option_name(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def format_toml(data: Mapping[str, Any]) -> str:
    """Format *data* as TOML without empty sections; a comment at the top names the page with all settings."""
    lines = [
        "# Settings of classad-hydrator, written by hydrator init.",
        "# docs/reference/configuration.md has all settings. Relative paths start at this file's folder.",
        "# An environment variable HYDRATOR_SECTION__KEY overrides the value of a setting.",
    ]
    for name, section in data.items():
        for table in section if isinstance(section, list) else [section]:
            if table:
                lines += ["", f"[[{name}]]" if isinstance(section, list) else f"[{name}]"]
                # a JSON string or list of strings is valid TOML, too, if it has no surrogate escapes
                lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _write_config(file: Path, content: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_new_file(file, content.encode())
    except OSError as error:
        raise ConfigError([f"init: {file}: {error.strerror}; name another file with -c"]) from error
