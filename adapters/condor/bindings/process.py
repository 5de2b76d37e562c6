"""Client of the worker with HTCondor's bindings: its environment, time limits of calls, and errors."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from adapters.worker import Worker, WorkerFailed
from hydrator.domain.errors import ConfigError, PoolDenied, PoolError

from .library import FIRST_COLLECTOR
from .token_advice import NEEDS, READ_NEED, describe_token_limit, is_level_missing, token_advice, token_limits

CHILD = (sys.executable, "-P", "-m", "adapters.condor.bindings.child")
LIMIT_BYTES = 1_000_000_000
"""The largest size of the process: the ads of 100,000 slots are some 300 MB."""
MAX_ANSWER_BYTES = 256 * 1024 * 1024
CONFIG_FILES = ("/etc/condor/condor_config", "/usr/local/etc/condor_config")
MAX_CALLS_OF_CHILD = 10_000
"""Answers after which a new child starts instead: the bindings leak some 0.7 kB a call (benchmarks, soak)."""
COLLECTOR_QUERIES = {"site_ads", "schedds", "slots"}
"""Calls in which only a collector can hang: the next child then queries another collector first, if any."""
LOCAL_CALLS = {
    "check_expressions": "the ClassAd parser",
    "token_folders": "HTCondor's configuration",
}
"""Calls that contact no daemon, each with the part that answers it, as messages name it."""
TIMEOUT_FACTORS = {
    "evaluate_match": 6,
    "outcomes": 6,
}
"""The limit of a call, as a number of timeouts; 2,000 slots and 244 datasets need 4 s plus the queries."""


@dataclass(frozen=True, slots=True)
class CondorSettings:
    """The address of a pool and the credentials for it.

    ``collector`` is ``host:port``, or several of these separated by commas; None means
    COLLECTOR_HOST of HTCondor's configuration. ``config_file`` replaces CONDOR_CONFIG.
    ``token_directory`` has the IDTOKENS to use. ``timeout`` is the time limit of each call.
    """

    collector: str | None = None
    config_file: Path | None = None
    token_directory: Path | None = None
    timeout: timedelta = timedelta(seconds=20)


def build_environment(
    settings: CondorSettings, base_environment: Mapping[str, str], config_files: Iterable[str] = CONFIG_FILES
) -> dict[str, str]:
    """Build the child's environment.

    HTCondor reads a variable ``_CONDOR_NAME`` as the configuration value ``NAME``. With a token directory
    and without ``settings.config_file`` the token is the only credential. By default an HTCondor client
    authenticates only if the daemon requires it. So in this case the environment prefers authentication;
    otherwise the daemon would see an unauthenticated client. *config_files* are the places where HTCondor
    looks for its configuration; if no such file exists, HTCondor reads only this environment.
    """
    env = dict(base_environment)
    if settings.config_file is not None:
        env["CONDOR_CONFIG"] = str(settings.config_file)
    elif "CONDOR_CONFIG" not in env and not any(Path(file).is_file() for file in config_files):
        env["CONDOR_CONFIG"] = "ONLY_ENV"
    if settings.collector is not None:
        env["_CONDOR_COLLECTOR_HOST"] = settings.collector
    if settings.token_directory is not None:
        env["_CONDOR_SEC_TOKEN_DIRECTORY"] = str(settings.token_directory)
        if settings.config_file is None:
            env["_CONDOR_SEC_CLIENT_AUTHENTICATION"] = "PREFERRED"
            env["_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS"] = "IDTOKENS"
    return env


class ProcessClient:
    """A client that makes calls in a worker, which may hang or die without harm to this process.

    The client is thread-safe: it sends one request at a time. The time limit of a call is
    ``settings.timeout``. If the worker fails, the call raises PoolError, and the next call starts a new one.

    Every call raises:
        PoolDenied: a daemon denied the credentials or the authorization.
        PoolError: a daemon did not answer in time.
        ConfigError: an expression that the caller gave cannot be parsed.
    """

    def __init__(
        self,
        settings: CondorSettings,
        command: Sequence[str] = CHILD,
        *,
        max_calls_of_child: int = MAX_CALLS_OF_CHILD,
    ) -> None:
        self._settings = settings
        self._first_collector = 0
        self._worker = Worker(
            command,
            limit_bytes=LIMIT_BYTES,
            env=self._build_environment,
            max_answers=max_calls_of_child,
            max_line_bytes=MAX_ANSWER_BYTES,
        )

    @property
    def restart_count(self) -> int:
        """Return the number of failed processes that were replaced; planned replacements do not count."""
        return self._worker.restart_count

    def close(self) -> None:
        """End the worker, also while a call waits for its answer; closing twice is not an error."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def token_folders(self) -> list[Path]:
        """Return the folders where HTCondor looks for IDTOKENS, without contacting a daemon."""
        return [Path(folder) for folder in self.call("token_folders")]

    def call(self, call: str, **args: object) -> Any:  # noqa: ANN401  (JSON)
        """Make one call in the child process; the values in *args* must have a JSON form."""
        seconds = self._settings.timeout.total_seconds() * TIMEOUT_FACTORS.get(call, 1)
        try:
            answer = self._worker.exchange({"call": call, "args": args}, seconds)
        except WorkerFailed as exc:
            if call in COLLECTOR_QUERIES and not args.get("collector"):
                self._first_collector += 1
            raise PoolError(self._describe_target(call, args), str(exc)) from None
        if error := answer.get("error"):
            level, advice = NEEDS.get(call, READ_NEED)
            self._raise_error(error, error["daemon"] or self._describe_target(call, args), level, advice)
        return answer["ok"]

    def _describe_target(self, call: str, args: Mapping[str, object]) -> str:
        """Return the name, for messages, of the daemon that a call contacts."""
        if call in LOCAL_CALLS:
            return LOCAL_CALLS[call]
        if "daemon" in args:
            parts = args["daemon"], args.get("name")
        elif "schedd" in args:
            parts = "schedd", args["schedd"]
        else:
            parts = "collector", args.get("collector") or self._settings.collector
        return " ".join(str(part) for part in parts if part)

    def _raise_error(self, error: Mapping[str, Any], daemon: str, level: str, advice: str) -> None:
        reason = str(error["reason"]).rstrip(".")
        if error["kind"] == "usage":
            raise ConfigError([reason])
        if error["kind"] == "denied":
            if "none of the credentials" in reason:
                advice = token_advice(self._settings.token_directory, os.geteuid())
            elif "(by IDTOKENS)" in reason and level:
                advice = self._token_limit_advice(level) or advice
            raise PoolDenied(daemon, f"{reason}; {advice}" if advice else reason)
        if "determine collector host" in reason:
            reason += (
                "; set htcondor.collector to the collector's host, or COLLECTOR_HOST in htcondor.config_file"
            )
        raise PoolError(daemon, reason)

    def _token_limit_advice(self, level: str) -> str:
        """Return advice if the tokens do not allow *level*; "" if they allow *level* or cannot be read."""
        with suppress(PoolError):
            allowed_levels = token_limits(self.token_folders())
            if is_level_missing(allowed_levels, level):
                return describe_token_limit(allowed_levels, level)
        return ""

    def _build_environment(self) -> dict[str, str]:
        environment = build_environment(self._settings, os.environ)
        return {**environment, FIRST_COLLECTOR: str(self._first_collector)}
