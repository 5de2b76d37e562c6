"""``hydrator init``: a first configuration, from a look at the pool and the catalogue and few questions.

Every question has an option; without a terminal, or with --yes, none is asked.
What is written was tried, unless --untried says that it cannot be from here.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH
from hydrator.cli.output.new_files import write_new_file
from hydrator.cli.output.progress import show_progress
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.text import format_count, shorten_list

DEFAULT_STATE_DIR: Final = "/var/lib/classad-hydrator"


class CatalogueKind(StrEnum):
    """What says where data is; others have their pages in docs/."""

    FILE = "file"
    RUCIO = "rucio"
    DMAPI = "dmapi"


class LoginMethod(StrEnum):
    """How the daemon shows who it is."""

    USERPASS = "userpass"
    TOKEN = "token"  # noqa: S105 - a word
    OIDC = "oidc"
    X509 = "x509"
    NONE = "none"


_REQUIRED_KEYS: Mapping[CatalogueKind, Mapping[str, str]] = {
    CatalogueKind.FILE: {"path": "The list of datasets, TOML or JSON"},
    CatalogueKind.RUCIO: {"url": "The server's URL", "account": "The account"},
    CatalogueKind.DMAPI: {"url": "The server's URL, with /api/v1"},
}
"""By kind, what must be known of it, and how it is asked for."""


_LOGIN_METHODS: Mapping[CatalogueKind, tuple[LoginMethod, ...]] = {
    CatalogueKind.FILE: (LoginMethod.NONE,),
    CatalogueKind.RUCIO: (LoginMethod.USERPASS, LoginMethod.TOKEN, LoginMethod.OIDC, LoginMethod.X509),
    CatalogueKind.DMAPI: (LoginMethod.TOKEN, LoginMethod.OIDC, LoginMethod.NONE),
}


_LOGIN_REQUIRED_KEYS: Mapping[LoginMethod, Mapping[str, str]] = {
    LoginMethod.USERPASS: {"username": "The user name", "password_file": "The file with the password"},
    LoginMethod.TOKEN: {"token_file": "The file with the token, which somebody renews"},
    LoginMethod.OIDC: {
        "token_url": "The identity provider's token URL",
        "client_id": "The client's id there",
        "client_secret_file": "The file with its secret",
    },
    LoginMethod.X509: {"client_cert": "The file with the certificate or proxy"},
    LoginMethod.NONE: {},
}


_OPTIONAL_KEYS: Mapping[CatalogueKind, tuple[str, ...]] = {
    CatalogueKind.FILE: (),
    CatalogueKind.RUCIO: ("client_key", "ca_cert"),
    CatalogueKind.DMAPI: ("ca_cert", "site_capabilities"),
}
"""What an option may give beside, and no question asks for."""


_Choice = TypeVar("_Choice", bound=StrEnum)


Prompt = Callable[[str, str], str]
"""Answers a question: the option that would have, and its words."""


def build_sections(
    kind: CatalogueKind | None,
    login: LoginMethod | None,
    option_values: Mapping[str, str | None],
    prompt: Prompt,
) -> dict[str, Any]:
    """The catalogue's section of a configuration, and that of Site Capabilities where it is given.

    Args:
        kind: of the catalogue; None: a URL alone means Rucio, else it is asked for.
        login: None: what is given says it (a token file, say), else it is asked for.
        given: by key of the configuration, what options said.
        ask: for the rest.

    Raises:
        ConfigError: something of it is not known, and nobody may be asked; or does not belong together.
    """
    known = kind or (CatalogueKind.RUCIO if option_values["url"] else None)
    chosen = known or _prompt_choice(prompt, "--catalogue", "The catalogue", CatalogueKind)
    found = _collect_values(_REQUIRED_KEYS[chosen], option_values, prompt)
    way = _choose_login_method(chosen, login, option_values, prompt)
    beside = [key for key in _OPTIONAL_KEYS[chosen] if key != "client_key" or way is LoginMethod.X509]
    has = {*_REQUIRED_KEYS[chosen], *_LOGIN_REQUIRED_KEYS[way], *beside}
    if foreign := [_option_name(key) for key, value in option_values.items() if value and key not in has]:
        by = f" by {way}" if len(_LOGIN_METHODS[chosen]) > 1 else ""
        raise ConfigError([f"init: {', '.join(foreign)}: a catalogue {chosen}{by} has no such thing"])
    found |= _collect_values(_LOGIN_REQUIRED_KEYS[way], option_values, prompt)
    found |= {key: value for key in beside if (value := option_values[key])}
    capabilities = found.pop("site_capabilities", None)
    auth = {"auth": way.value} if chosen is CatalogueKind.RUCIO and way is not LoginMethod.USERPASS else {}
    made: dict[str, Any] = {
        "catalogue": [{"type": chosen.value, "name": chosen.value, **auth, **found}],
    }
    if capabilities:  # the same identity asks both
        same = {key: found[key] for key in [*_LOGIN_REQUIRED_KEYS[way], "ca_cert"] if key in found}
        made["site_capabilities"] = {"url": capabilities, **same}
    return made


def _collect_values(
    questions: Mapping[str, str], option_values: Mapping[str, str | None], prompt: Prompt
) -> dict[str, str]:
    return {key: option_values[key] or prompt(_option_name(key), words) for key, words in questions.items()}


def _choose_login_method(
    kind: CatalogueKind, login: LoginMethod | None, option_values: Mapping[str, str | None], prompt: Prompt
) -> LoginMethod:
    ways = _LOGIN_METHODS[kind]
    if login is not None and login not in ways:
        raise ConfigError([f"init: --auth {login}: a catalogue {kind} takes {', '.join(ways)}"])
    meant = [way for way in ways if any(option_values[key] for key in _LOGIN_REQUIRED_KEYS[way])]
    if login or len(meant) == 1 or len(ways) == 1:
        return login or (meant or [*ways])[0]
    return _prompt_choice(prompt, "--auth", "How the daemon logs in there", ways)


def _prompt_choice(prompt: Prompt, option: str, question: str, choices: Iterable[_Choice]) -> _Choice:
    by_name = {str(one): one for one in choices}
    word = prompt(option, f"{question} ({', '.join(by_name)})")
    if word not in by_name:
        raise ConfigError([f"init: {option} {word!r}: it is one of {', '.join(by_name)}"])
    return by_name[word]


def _option_name(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def init(
    config: Annotated[
        Path, typer.Option("--config", "-c", envvar="HYDRATOR_CONFIG", help="The file to write.")
    ] = DEFAULT_CONFIG_PATH,
    collector: Annotated[
        str | None, typer.Option(help="host or host:port; default: as HTCondor's configuration says.")
    ] = None,
    condor_config: Annotated[
        Path | None, typer.Option(help="An HTCondor configuration of the daemon's own.")
    ] = None,
    token_directory: Annotated[
        Path | None, typer.Option(help="A folder with the daemon's IDTOKEN, and nothing else.")
    ] = None,
    site_attribute: Annotated[
        str | None, typer.Option(help="Where slots say their site; default: GLIDEIN_Site and the like.")
    ] = None,
    catalogue: Annotated[CatalogueKind | None, typer.Option(help="What says where data is.")] = None,
    path: Annotated[str | None, typer.Option(help="For file: the list of datasets, TOML or JSON.")] = None,
    url: Annotated[str | None, typer.Option(help="For rucio and dmapi: the server.")] = None,
    account: Annotated[str | None, typer.Option(help="For rucio: the account.")] = None,
    auth: Annotated[
        LoginMethod | None, typer.Option(help="How the daemon logs in there; default: as what is given says.")
    ] = None,
    username: Annotated[str | None, typer.Option(help="For userpass: the user name.")] = None,
    password_file: Annotated[
        str | None, typer.Option(help="For userpass: the file with the password; never the password.")
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(help="For token: a file with the token, which somebody renews.")
    ] = None,
    token_url: Annotated[str | None, typer.Option(help="For oidc: where tokens are had.")] = None,
    client_id: Annotated[str | None, typer.Option(help="For oidc: the client.")] = None,
    client_secret_file: Annotated[
        str | None, typer.Option(help="For oidc: the file with the client's secret.")
    ] = None,
    client_cert: Annotated[
        str | None, typer.Option(help="For x509: the file with the certificate or proxy.")
    ] = None,
    client_key: Annotated[
        str | None, typer.Option(help="For x509: the file with its key, where that is another.")
    ] = None,
    ca_cert: Annotated[
        str | None, typer.Option(help="For rucio and dmapi: who signed its certificate, as a file.")
    ] = None,
    site_capabilities: Annotated[
        str | None, typer.Option(help="For dmapi: SKA's service that knows which storage is where, its URL.")
    ] = None,
    state_dir: Annotated[str, typer.Option(help="What must survive a restart.")] = DEFAULT_STATE_DIR,
    untried: Annotated[bool, typer.Option("--untried", help="Ask neither pool nor catalogue.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask no questions.")] = False,
) -> None:
    """Write a first configuration: looks at the pool and the catalogue, and asks for what it cannot see.

    Overwrites nothing. `hydrator check` says what else an installation needs.
    """
    from hydrator.config import parse

    if config.exists():
        raise ConfigError(
            [f"init: {config} is there already, and nothing is overwritten: name another with -c"]
        )
    ask = _build_prompt(is_quiet=yes or not sys.stdin.isatty())
    pool = {"collector": collector, "config_file": condor_config, "token_directory": token_directory}
    given = {
        "path": path, "url": url, "account": account, "username": username, "password_file": password_file,
        "token_file": token_file, "token_url": token_url, "client_id": client_id,
        "client_secret_file": client_secret_file, "client_cert": client_cert, "client_key": client_key,
        "ca_cert": ca_cert, "site_capabilities": site_capabilities,
    }  # fmt: skip
    told = build_sections(catalogue, auth, given, ask)
    data: dict[str, Any] = {
        "daemon": {"state_dir": state_dir},
        "htcondor": {key: str(value) for key, value in pool.items() if value is not None},
        "sites": {"slot_attributes": [site_attribute]} if site_attribute else {},
        **told,
    }
    if state_dir != DEFAULT_STATE_DIR:  # else the ad files would go where another daemon's are
        data["publish.file"] = {"directory": f"{state_dir.rstrip('/')}/ads"}
    settings = parse(_nest_tables(data), folder=config.parent.absolute(), origin="init")
    if not untried:
        with show_progress("asking the pool and the catalogue"):
            found = _query_pool_and_catalogues(settings)
        _print_messages(found)
    _write_config(config, format_toml(data))
    print(f"wrote {config}")
    _print_messages([f"next: hydrator check -c {config}, then hydrator plan -c {config}"])


def _build_prompt(*, is_quiet: bool) -> Callable[[str, str], str]:
    """Asks at the terminal; when *quiet* it names the option that would have answered."""

    def ask(option: str, words: str) -> str:
        if is_quiet:
            raise ConfigError([f"init: {option} is needed: {words[0].lower()}{words[1:]}"])
        return str(typer.prompt(words)).strip()

    return ask


def _query_pool_and_catalogues(settings: Any) -> list[str]:  # noqa: ANN401 - config.Settings, imported late
    """What pool and catalogue say, a sentence each.

    Raises:
        PoolError, CatalogueError: one of them does not answer; nothing is written then.
    """
    from hydrator.wiring import assemble, system_clock

    parts = assemble(settings, system_clock)
    try:
        slots = _count_slots_by_site(parts.client, settings)
        surveys = [each.read(frozenset()) for each in parts.catalogues]
    finally:
        parts.close()
    here = {name for name in slots if name}
    told = [f"the pool has {format_count(sum(slots.values()), 'slot')} at {_format_sites(here)}"]
    if nowhere := slots.get("", 0):
        names = ", ".join(settings.sites.slot_attributes)
        told.append(
            f"{format_count(nowhere, 'slot')} of them say no site in {names}: --site-attribute names another"
        )
    for survey in surveys:
        told.append(f"the catalogue {survey.catalogue} speaks for {_format_sites(survey.sites)}")
        if survey.unmapped_storages:
            told.append(
                f"no site is known for {format_count(len(survey.unmapped_storages), 'storage element')}: docs/sites.md"
            )
        if here and survey.sites and not here & survey.sites:
            told.append("none of these sites is one of the pool's: [sites.aliases], docs/sites.md")
    return told


def _count_slots_by_site(client: Any, settings: Any) -> Mapping[str, int]:  # noqa: ANN401 - imported late
    try:
        return client.slots_by_site(settings.sites.slot_attributes) if client else {}
    except PoolError as error:
        if settings.htcondor.collector:
            raise
        hint = "give --collector HOST, or --untried to ask no pool"
        raise PoolError(error.daemon, f"{error.reason}; {hint}") from error


def _nest_tables(data: Mapping[str, Any]) -> dict[str, Any]:
    """*data* with a table in a table for every name that has a dot, as TOML reads it."""
    whole: dict[str, Any] = {}
    for name, section in data.items():
        outer, _, inner = name.partition(".")
        whole[outer] = {inner: section} if inner else section
    return whole


def _format_sites(sites: Any) -> str:  # noqa: ANN401 - a set of names
    names = shorten_list(sorted(sites), limit=5)
    return f"{format_count(len(sites), 'site')}{': ' if names else ''}{names}"


def format_toml(data: Mapping[str, Any]) -> str:
    """*data* as TOML, empty sections left out, with a word on where the rest stands."""
    lines = [
        "# classad-hydrator, written by hydrator init. Everything that can be set stands, with its",
        "# default, in config.example.toml; every value can be overridden by HYDRATOR_SECTION__KEY.",
    ]
    for name, section in data.items():
        for table in section if isinstance(section, list) else [section]:
            if table:
                lines += ["", f"[[{name}]]" if isinstance(section, list) else f"[{name}]"]
                # a JSON string or list of strings is one in TOML, too, unless it is escaped to surrogates
                lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _write_config(file: Path, content: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_new_file(file, content.encode())
    except OSError as error:
        raise ConfigError([f"init: {file}: {error.strerror}; name another file with -c"]) from error


def _print_messages(lines: list[str]) -> None:
    for line in lines:
        print(f"hydrator: {line}", file=sys.stderr)
