"""What ``hydrator init`` must know of a catalogue, and of how the daemon logs in there."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from hydrator.domain.errors import ConfigError


class Kind(StrEnum):
    """What says where data is; others have their pages in docs/."""

    FILE = "file"
    RUCIO = "rucio"
    DMAPI = "dmapi"


class Login(StrEnum):
    """How the daemon shows who it is."""

    USERPASS = "userpass"
    TOKEN = "token"  # noqa: S105 - a word
    OIDC = "oidc"
    X509 = "x509"
    NONE = "none"


_NEEDS: Mapping[Kind, Mapping[str, str]] = {
    Kind.FILE: {"path": "The list of datasets, TOML or JSON"},
    Kind.RUCIO: {"url": "The server's URL", "account": "The account"},
    Kind.DMAPI: {"url": "The server's URL, with /api/v1"},
}
"""By kind, what must be known of it, and how it is asked for."""
_LOGINS: Mapping[Kind, tuple[Login, ...]] = {
    Kind.FILE: (Login.NONE,),
    Kind.RUCIO: (Login.USERPASS, Login.TOKEN, Login.OIDC, Login.X509),
    Kind.DMAPI: (Login.TOKEN, Login.OIDC, Login.NONE),
}
_LOGIN_NEEDS: Mapping[Login, Mapping[str, str]] = {
    Login.USERPASS: {"username": "The user name", "password_file": "The file with the password"},
    Login.TOKEN: {"token_file": "The file with the token, which somebody renews"},
    Login.OIDC: {
        "token_url": "The identity provider's token URL",
        "client_id": "The client's id there",
        "client_secret_file": "The file with its secret",
    },
    Login.X509: {"client_cert": "The file with the certificate or proxy"},
    Login.NONE: {},
}
_NEVER_ASKED: Mapping[Kind, tuple[str, ...]] = {
    Kind.FILE: (),
    Kind.RUCIO: ("client_key", "ca_cert"),
    Kind.DMAPI: ("ca_cert", "site_capabilities"),
}
"""What an option may give beside, and no question asks for."""

_One = TypeVar("_One", bound=StrEnum)
Ask = Callable[[str, str], str]
"""Answers a question: the option that would have, and its words."""


def sections(
    kind: Kind | None, login: Login | None, given: Mapping[str, str | None], ask: Ask
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
    known = kind or (Kind.RUCIO if given["url"] else None)
    chosen = known or _word(ask, "--catalogue", "The catalogue", Kind)
    found = _answers(_NEEDS[chosen], given, ask)
    way = _login(chosen, login, given, ask)
    beside = [key for key in _NEVER_ASKED[chosen] if key != "client_key" or way is Login.X509]
    has = {*_NEEDS[chosen], *_LOGIN_NEEDS[way], *beside}
    if foreign := [_option(key) for key, value in given.items() if value and key not in has]:
        by = f" by {way}" if len(_LOGINS[chosen]) > 1 else ""
        raise ConfigError([f"init: {', '.join(foreign)}: a catalogue {chosen}{by} has no such thing"])
    found |= _answers(_LOGIN_NEEDS[way], given, ask)
    found |= {key: value for key in beside if (value := given[key])}
    capabilities = found.pop("site_capabilities", None)
    auth = {"auth": way.value} if chosen is Kind.RUCIO and way is not Login.USERPASS else {}
    made: dict[str, Any] = {
        "catalogue": [{"type": chosen.value, "name": chosen.value, **auth, **found}],
    }
    if capabilities:  # the same identity asks both
        same = {key: found[key] for key in [*_LOGIN_NEEDS[way], "ca_cert"] if key in found}
        made["site_capabilities"] = {"url": capabilities, **same}
    return made


def _answers(needs: Mapping[str, str], given: Mapping[str, str | None], ask: Ask) -> dict[str, str]:
    return {key: given[key] or ask(_option(key), words) for key, words in needs.items()}


def _login(kind: Kind, login: Login | None, given: Mapping[str, str | None], ask: Ask) -> Login:
    ways = _LOGINS[kind]
    if login is not None and login not in ways:
        raise ConfigError([f"init: --auth {login}: a catalogue {kind} takes {', '.join(ways)}"])
    meant = [way for way in ways if any(given[key] for key in _LOGIN_NEEDS[way])]
    if login or len(meant) == 1 or len(ways) == 1:
        return login or (meant or [*ways])[0]
    return _word(ask, "--auth", "How the daemon logs in there", ways)


def _word(ask: Ask, option: str, words: str, choices: Iterable[_One]) -> _One:
    by_name = {str(one): one for one in choices}
    word = ask(option, f"{words} ({', '.join(by_name)})")
    if word not in by_name:
        raise ConfigError([f"init: {option} {word!r}: it is one of {', '.join(by_name)}"])
    return by_name[word]


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"
