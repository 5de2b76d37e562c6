"""``hydrator init``: a first configuration, from the pool, the catalogue and the user's answers.

Every prompt has an option; without a terminal, or with --yes, the command does not prompt.
Before the command writes the file, it tests the settings at the pool and the catalogue; --untried skips this.
"""

import json
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, command_of
from hydrator.cli.output.new_files import write_new_file
from hydrator.cli.output.printing import print_problems
from hydrator.cli.output.progress import show_progress
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.model import Site
from hydrator.domain.text import format_count

DEFAULT_STATE_DIR: Final = "/var/lib/classad-hydrator"


CatalogueKind = Literal["file", "rucio", "dmapi"]
"""Types of catalogue that ``hydrator init`` can configure; docs/ has a page on each further type."""
LoginMethod = Literal["userpass", "token", "oidc", "x509", "none"]
"""Method by which the daemon logs in to the catalogue."""

_REQUIRED_KEYS: Mapping[CatalogueKind, Mapping[str, str]] = {
    "file": {"path": "The list of datasets, TOML or JSON"},
    "rucio": {"url": "The server's URL", "account": "The account"},
    "dmapi": {"url": "The server's URL, with /api/v1"},
}
"""By kind, the required keys and the questions that ask for them."""
_LOGIN_METHODS: Mapping[CatalogueKind, Sequence[LoginMethod]] = {
    "file": ("none",),
    "rucio": ("userpass", "token", "oidc", "x509"),
    "dmapi": ("token", "oidc", "none"),
}
_LOGIN_REQUIRED_KEYS: Mapping[LoginMethod, Mapping[str, str]] = {
    "userpass": {"username": "The user name", "password_file": "The file with the password"},
    "token": {"token_file": "The file with the token, which you must renew"},
    "oidc": {
        "token_url": "The identity provider's token URL",
        "client_id": "The client's id at the identity provider",
        "client_secret_file": "The file with the client's secret",
    },
    "x509": {"client_cert": "The file with the certificate or proxy"},
    "none": {},
}
_OPTIONAL_KEYS: Mapping[str, Sequence[str]] = {
    "rucio": ("ca_cert",),
    "dmapi": ("ca_cert", "site_capabilities"),
    "x509": ("client_key",),
}
"""Keys for which ``hydrator init`` has options, but does not ask; by kind, or by login method."""
_CATALOGUE_KEYS = frozenset(
    key
    for keys in (*_REQUIRED_KEYS.values(), *_LOGIN_REQUIRED_KEYS.values(), *_OPTIONAL_KEYS.values())
    for key in keys
)
_Choice = TypeVar("_Choice", bound=str)

_LINK_QUESTION = "What jobs at other sites can together read from one site, in Gb/s"
_WHEN_IT_PAYS = (
    "it pays where links are busy: (bytes of a job / uplink) / (its run time) x (cores of the pool / 12)"
    " above 0.2; see docs/operators/placement.md"
)

Prompt = Callable[[str, str], str]
"""A function that takes the name of an option and a question, and returns the user's answer."""


@dataclass(frozen=True)
class InitOptions:
    """Options of ``hydrator init``; an option that sets a key of [[catalogue]] has the name of this key."""

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
    url: Annotated[str | None, typer.Option(help="For rucio and dmapi: the server's URL.")] = None
    account: Annotated[str | None, typer.Option(help="For rucio: the account.")] = None
    auth: Annotated[
        LoginMethod | None, typer.Option(help="Login at the catalogue; default: by the options below.")
    ] = None
    username: Annotated[str | None, typer.Option(help="For userpass: the user name.")] = None
    password_file: Annotated[str | None, typer.Option(help="For userpass: file with the password.")] = None
    token_file: Annotated[str | None, typer.Option(help="For token: file with it; you must renew it.")] = None
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
    gbit_per_second: Annotated[float | None, typer.Option(help=f"{_LINK_QUESTION}; asked if not given.")] = (
        None
    )
    state_dir: Annotated[str, typer.Option(help="Folder of what must survive a restart.")] = DEFAULT_STATE_DIR
    untried: Annotated[
        bool, typer.Option("--untried", help="Write the file without a query to the pool or the catalogue.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask no questions.")] = False

    @property
    def catalogue_values(self) -> dict[str, str]:
        """Return the options that set keys of [[catalogue]], with the values that the user gave."""
        return {key: value for key, value in vars(self).items() if key in _CATALOGUE_KEYS and value}


def init(options: InitOptions) -> None:
    """Write a first configuration, with answers or by options.

    The command queries the pool and the catalogue, prompts for the rest, and never overwrites a file.
    `hydrator check` lists what else the installation needs.
    """
    from hydrator.config import parse

    config = options.config
    if config.exists():
        raise ConfigError([f"init: {config} exists and is not overwritten: name another file with -c"])
    is_quiet = options.yes or not sys.stdin.isatty()
    data = build_data(options, _build_prompt(is_quiet=is_quiet))
    if options.gbit_per_second is None and not is_quiet:
        data |= _build_network(typer.prompt(_LINK_QUESTION, default=1.0))
    text = format_toml(data)
    settings = parse(tomllib.loads(text), folder=config.parent.absolute(), origin="init")
    if not options.untried:
        with show_progress("asking the pool and the catalogue"):
            messages = _query_pool_and_catalogues(settings)
        print_problems(*messages)
    _write_config(config, text)
    print(f"wrote {config}")
    print_problems(_WHEN_IT_PAYS)
    print_problems(f"next: hydrator check -c {config}, then hydrator plan -c {config}")


init_command = command_of(InitOptions, init)


def build_data(options: InitOptions, prompt: Prompt) -> dict[str, Any]:
    """Build the sections of the configuration from *options*; *prompt* asks the user for missing values.

    Raises:
        ConfigError: a value is missing and prompts are off, or an option does not fit the catalogue.
    """
    pool = {
        "collector": options.collector,
        "config_file": options.condor_config,
        "token_directory": options.token_directory,
    }
    site_attribute, state_dir = options.site_attribute, options.state_dir
    data: dict[str, Any] = {
        "daemon": {"state_dir": state_dir},
        "htcondor": {key: str(value) for key, value in pool.items() if value is not None},
        "sites": {"slot_attributes": [site_attribute]} if site_attribute else {},
        **_build_catalogue_sections(options, prompt),
        **_build_network(options.gbit_per_second),
    }
    if state_dir != DEFAULT_STATE_DIR:  # another daemon may publish its ads in the default folder
        data["publish.file"] = {"directory": f"{state_dir.rstrip('/')}/ads"}
    return data


def _build_network(gbit_per_second: float | None) -> dict[str, Any]:
    return {"network": {"default_gbit_per_second": gbit_per_second}} if gbit_per_second is not None else {}


def _build_catalogue_sections(options: InitOptions, prompt: Prompt) -> dict[str, Any]:
    """Build the section [[catalogue]], and [site_capabilities] if the user gave its URL.

    A URL without --catalogue means Rucio. Without --auth, the other options determine the login method.
    If no method or several methods fit these options, *prompt* asks for the method.
    """
    given_values = options.catalogue_values
    kind = options.catalogue or ("rucio" if options.url else None)
    kind = kind or _prompt_choice(prompt, "--catalogue", "The catalogue", tuple(_REQUIRED_KEYS))
    values = _collect_values(_REQUIRED_KEYS[kind], given_values, prompt)
    method = _choose_login_method(kind, options.auth, given_values, prompt)
    login_keys = _LOGIN_REQUIRED_KEYS[method]
    optional_keys = (*_OPTIONAL_KEYS.get(method, ()), *_OPTIONAL_KEYS.get(kind, ()))
    valid_keys = {*_REQUIRED_KEYS[kind], *login_keys, *optional_keys}
    if foreign_options := [_option_name(key) for key in given_values if key not in valid_keys]:
        by = f" with --auth {method}" if len(_LOGIN_METHODS[kind]) > 1 else ""
        raise ConfigError([f"init: {', '.join(foreign_options)}: not valid with --catalogue {kind}{by}"])
    values |= _collect_values(login_keys, given_values, prompt)
    values |= {key: given_values[key] for key in optional_keys if key in given_values}
    capabilities = values.pop("site_capabilities", None)
    auth = {"auth": method} if kind == "rucio" and method != "userpass" else {}
    sections: dict[str, Any] = {"catalogue": [{"type": kind, "name": kind, **auth, **values}]}
    if capabilities:  # the daemon uses the same credentials at Site Capabilities and at the catalogue
        identity = {key: values[key] for key in [*login_keys, "ca_cert"] if key in values}
        sections["site_capabilities"] = {"url": capabilities, **identity}
    return sections


def _collect_values(
    questions: Mapping[str, str], given_values: Mapping[str, str], prompt: Prompt
) -> dict[str, str]:
    return {
        key: given_values.get(key) or prompt(_option_name(key), words) for key, words in questions.items()
    }


def _choose_login_method(
    kind: CatalogueKind, method: LoginMethod | None, given_values: Mapping[str, str], prompt: Prompt
) -> LoginMethod:
    methods = _LOGIN_METHODS[kind]
    if method is not None and method not in methods:
        raise ConfigError([f"init: --auth {method}: --catalogue {kind} supports {', '.join(methods)}"])
    candidates = [one for one in methods if _LOGIN_REQUIRED_KEYS[one].keys() & given_values.keys()] or methods
    if method or len(candidates) == 1:
        return method or candidates[0]
    return _prompt_choice(prompt, "--auth", "How the daemon logs in to the catalogue", methods)


def _prompt_choice(prompt: Prompt, option: str, question: str, choices: Sequence[_Choice]) -> _Choice:
    listed = ", ".join(choices)
    word = prompt(option, f"{question} ({listed})")
    for one in choices:
        if one == word:
            return one
    raise ConfigError([f"init: {option} {word!r}: use one of {listed}"])


def _option_name(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _build_prompt(*, is_quiet: bool) -> Callable[[str, str], str]:
    """Return a function that asks the user for a value.

    If *is_quiet*, the returned function asks nothing: it raises an error that names the missing option.
    """

    def ask(option: str, words: str) -> str:
        if is_quiet:
            raise ConfigError([f"init: give the option {option}: {words[0].lower()}{words[1:]}"])
        return str(typer.prompt(words)).strip()

    return ask


def _query_pool_and_catalogues(settings: Any) -> list[str]:  # noqa: ANN401 - config.Settings, imported late
    """Query the pool and the catalogues; return sentences about their answers.

    Raises:
        PoolError, CatalogueError: the pool or a catalogue does not answer; the command then writes no file.
    """
    from hydrator.diagnostics.check.findings import name_list
    from hydrator.diagnostics.check.installation import check_catalogue
    from hydrator.wiring import system_clock
    from hydrator.wiring.assembly import assemble

    with closing(assemble(settings, system_clock)) as parts:
        slots = _count_slots_by_site(parts.pool.client, settings)
        sites: set[Site] = set()
        findings = [one for each in parts.catalogues for one in check_catalogue(each, sites)]
    pool_sites = {name for name in slots if name}
    there = f"{format_count(len(pool_sites), 'site')}{': ' if pool_sites else ''}{name_list(pool_sites)}"
    messages = [f"the pool has {format_count(sum(slots.values()), 'slot')} at {there}"]
    if siteless := slots.get("", 0):
        names = ", ".join(settings.sites.slot_attributes)
        messages.append(
            f"{format_count(siteless, 'slot')} of the pool have no site in the attributes {names}:"
            " name the slots' attribute with --site-attribute"
        )
    messages += [
        f"catalogue {one.subject}: {': '.join(filter(None, (one.message, one.todo)))}" for one in findings
    ]
    if pool_sites and sites and not pool_sites & sites:
        messages.append(
            "the pool and the catalogue have no site name in common: set [sites.aliases],"
            " see docs/operators/sites.md"
        )
    return messages


def _count_slots_by_site(client: Any, settings: Any) -> Mapping[str, int]:  # noqa: ANN401 - a class imported late
    try:
        return client.slots_by_site(settings.sites.slot_attributes) if client else {}
    except PoolError as error:
        if settings.htcondor.collector:
            raise
        hint = "give --collector HOST, or --untried to query no pool"
        raise PoolError(error.daemon, f"{error.reason}; {hint}") from error


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
