"""The opaque names of private datasets, and what keeps secrets and names out of the log."""

import contextlib
import os

from ..config import Settings
from ..errors import ConfigError
from ..model import parse_did
from ..private import Veil
from ..redact import Redactor
from ..register import FILE_NAME, Register, read_key
from .core import privacy


def register_of(settings: Settings, *, owned: bool = True) -> Register | None:
    """The opaque names of private datasets; None where none are private.

    *owned* is False for who only looks: the file of names may be out of reach then.

    Raises:
        ConfigError: with every key that cannot be used.
    """
    if not settings.private.patterns:
        return None
    if settings.private.key_file is None:
        raise ConfigError(["private.key_file: the daemon needs it: 32 random bytes or more, mode 600"])
    files = [("private.key_file", settings.private.key_file)]
    files += [("private.old_key_files", file) for file in settings.private.old_key_files]
    keys: list[bytes] = []
    problems: list[str] = []
    for name, file in files:
        try:
            keys.append(read_key(file, name))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    names = settings.daemon.state_dir / FILE_NAME
    readable = owned or os.access(names, os.R_OK)
    register = Register(Veil(privacy(settings), tuple(keys)), names if readable else None)
    register.learn(parse_did(pin, settings.daemon.default_scope) for pin in settings.demand.pins)
    return register


def redactor(settings: Settings) -> Redactor:
    """What looks through every line of the log: for the secrets of *settings*, and for private datasets.

    A secret that cannot be read now is none that could be logged.
    """
    files = [settings.private.key_file, *settings.private.old_key_files, settings.submit.token_file]
    for source in settings.catalogue:
        names = ("password_file", "token_file", "client_secret_file")
        files += [getattr(source, name, None) for name in names]
    files += [broker.password_file for broker in settings.events.stomp]
    files += [settings.site_capabilities.token_file, settings.site_capabilities.client_secret_file]
    secrets = []
    for file in filter(None, files):
        with contextlib.suppress(OSError):
            secrets.append(file.read_bytes().decode("utf-8", "replace").strip())
    try:
        register = register_of(settings, owned=False)
    except ConfigError:  # told by who needs the key
        register = None
    return Redactor(secrets, register.veil.scrubbed if register else privacy(settings).scrubbed)
