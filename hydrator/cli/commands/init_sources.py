"""What ``hydrator init`` must know of a catalogue, and of how the daemon logs in there."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from hydrator.domain.errors import ConfigError


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
