"""Loader: read a TOML file and return settings with absolute paths."""

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from hydrator.domain.errors import ConfigError
from hydrator.domain.files import read_limited
from hydrator.domain.redaction import escape_unprintable

from .settings import Settings
from .validation import cross_checks, describe_problem

CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"
"""The variable with the folder of a unit's credentials; see systemd.exec(5)."""
_MAX_BYTES = 16 * 1024 * 1024
SECRET_KEY_ENDINGS = ("_file", "_files", "tls_key", "tls_certificate", "client_key", "client_cert")
_LIBRARY_KEYS = ("config_file", "ca_cert", "tls_key", "tls_certificate", "client_key", "client_cert")
"""Files that HTCondor or OpenSSL opens: both wait for the writer of a pipe, and read a device without end."""


def load(path: Path) -> Settings:
    """Load the configuration at *path*; relative paths in the file start at the folder of the file.

    Raises:
        ConfigError: lists every problem, those between sections once each section is valid; each begins with
            its key.
    """
    try:
        text = read_limited(path, _MAX_BYTES).decode("utf-8-sig")
        data = tomllib.loads(text)
    except OSError as error:
        advice = (
            "give a configuration with --config; a user writes five lines"
            " (docs/users/submit.md#get-hydrator), an operator runs `hydrator init`"
        )
        raise ConfigError([f"{path}: {error.strerror}; {advice}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not UTF-8 text (byte {error.start})"]) from error
    except RecursionError as error:
        raise ConfigError([f"{path}: invalid TOML: the lists or tables are nested too deeply"]) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from error
    return parse(data, folder=path.parent.absolute(), origin=str(path))


def parse(data: Mapping[str, Any], *, folder: Path, origin: str) -> Settings:
    """Check *data*, the parsed TOML; see :func:`load`."""
    try:
        settings = _build_settings(data)
    except ValidationError as error:
        problems = [describe_problem(detail) for detail in error.errors()]
        raise ConfigError([f"{origin}: {escape_unprintable(problem)}" for problem in problems]) from error
    if problems := cross_checks(settings):
        raise ConfigError([f"{origin}: {escape_unprintable(problem)}" for problem in problems])
    return _make_paths_absolute(settings, folder, origin)


def _build_settings(data: Mapping[str, Any]) -> Settings:
    """Build the settings of *data*; variables of the environment have priority."""
    sections = tuple(f"HYDRATOR_{name.upper()}" for name in Settings.model_fields)
    if any(name.upper().startswith(sections) for name in os.environ):
        from .environment import override

        return override(data)
    return Settings(**data)


def _make_paths_absolute(settings: Settings, folder: Path, origin: str) -> Settings:
    """Return *settings* with absolute paths: a relative path starts at *folder*."""

    def make_absolute(value: Any, key: str = "") -> Any:  # noqa: ANN401
        if isinstance(value, Path):
            if "\0" in str(value):
                raise ConfigError([f"{origin}: {key}: no path has a NUL character"])
            try:
                path = _find_systemd_credential(value, key) or folder / value.expanduser()
            except RuntimeError:
                problem = escape_unprintable(f"{key}: {value}: no user has this name")
                raise ConfigError([f"{origin}: {problem}"]) from None
            if key.endswith(_LIBRARY_KEYS) and _is_pipe_or_device(path):
                problem = escape_unprintable(f"{key}: {path}: it is a pipe or a device, not a file")
                raise ConfigError([f"{origin}: {problem}"])
            return path
        if isinstance(value, BaseModel):
            made = {name: (it, make_absolute(it, f"{key}.{name}".lstrip("."))) for name, it in value}
            # only what changes: model_fields_set then has what the operator wrote
            return value.model_copy(update={name: new for name, (old, new) in made.items() if new != old})
        if isinstance(value, list):
            return [make_absolute(item, key) for item in value]
        return value

    result: Settings = make_absolute(settings)
    return result


def _is_pipe_or_device(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # the part that opens the file reports this
        return False
    return stat.S_ISFIFO(mode) or (stat.S_ISCHR(mode) and path != Path(os.devnull))


def _find_systemd_credential(name: Path, key: str) -> Path | None:
    """Return the file of the systemd credential *name*.

    Return None if *key* is not for a file with a secret, or if systemd does not pass this credential.
    """
    folder = os.environ.get(CREDENTIALS_VARIABLE)
    if not folder or len(name.parts) != 1 or not key.endswith(SECRET_KEY_ENDINGS):
        return None
    file = Path(folder) / name
    return file if file.is_file() else None
