"""Environment: variables such as ``HYDRATOR_DAEMON__POLL_SECONDS``, which have priority over the file.

Only a process with such a variable imports this module: the import of pydantic-settings is slow.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from hydrator.domain.errors import ConfigError

from .settings import Settings


class _EnvironmentSettings(Settings, BaseSettings):
    """Settings that the environment overrides."""

    model_config = SettingsConfigDict(
        env_prefix="HYDRATOR_", env_nested_delimiter="__", env_ignore_empty=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings


def override(data: Mapping[str, Any]) -> Settings:
    """Build the settings of *data*, the parsed TOML, and of the environment.

    Raises:
        ConfigError: a variable for a list or a section is not JSON.
        ValidationError: a value is not valid.
    """
    try:
        return _EnvironmentSettings(**data)
    except SettingsError as error:
        raise ConfigError([_describe_bad_variable(error)]) from error


def _describe_bad_variable(error: SettingsError) -> str:
    key = re.search(r'field "([^"]+)"', str(error))
    names = [
        name
        for name in os.environ
        if key and re.fullmatch(rf"HYDRATOR_(\w+__)?{key[1]}(__\w+)?", name, re.IGNORECASE)
    ]
    return f'environment: {" or ".join(sorted(names)) or error}: the value must be JSON, such as ["a", "b"]'
