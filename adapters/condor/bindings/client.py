"""Calls to a pool's collectors and schedds, and matches of jobs with slots, made in the child process.

Most of them are those of the child, unchanged: :func:`_forward` makes a method of each.
"""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Concatenate, ParamSpec, TypeVar

from hydrator.domain.daemon_probe import Authorization, DaemonKind
from hydrator.domain.errors import PoolDenied

from .collector_calls import CollectorCalls
from .library import SITE_WIDE_ATTRIBUTES, Ad, Bindings
from .match_calls import MatchCalls
from .process import ProcessClient
from .schedd_calls import ScheddCalls, TransferCalls

_LONG_NAMES = {name.lower() for name in SITE_WIDE_ATTRIBUTES}
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")
_Calls = TypeVar("_Calls", bound=Bindings)


def _forward(
    call: Callable[Concatenate[_Calls, _Arguments], _Answer],
) -> Callable[Concatenate[ProcessClient, _Arguments], _Answer]:
    """Return a method that makes *call*, one of the child; its arguments and answer have a JSON form."""
    signature = inspect.signature(call)

    @functools.wraps(call)
    def ask(client: ProcessClient, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        arguments = signature.bind(client, *args, **kwargs).arguments
        del arguments["self"]
        answer: _Answer = client.call(call.__name__, **arguments)
        return answer

    return ask


class CondorClient(ProcessClient):
    """A client with all calls, which share one child process, one lock and one set of credentials."""

    # any daemon, or none
    config_of = _forward(Bindings.config_of)
    check_expressions = _forward(Bindings.check_expressions)

    # collectors
    site_ads = _forward(CollectorCalls.site_ads)
    collectors = _forward(CollectorCalls.collectors)
    merge = _forward(CollectorCalls.merge)

    # schedds
    schedds = _forward(ScheddCalls.schedds)
    outcomes = _forward(ScheddCalls.outcomes)
    read_transfer_records = _forward(TransferCalls.read_transfer_records)
    run_anywhere = _forward(ScheddCalls.run_anywhere)
    read_queue = _forward(ScheddCalls.read_queue)
    read_cluster_jobs = _forward(ScheddCalls.read_cluster_jobs)
    read_job_texts = _forward(MatchCalls.read_job_texts)

    # why a job does not start
    find_ended_job = _forward(MatchCalls.find_ended_job)
    jobs = _forward(MatchCalls.jobs)
    evaluate_match = _forward(MatchCalls.evaluate_match)
    evaluate_sites = _forward(MatchCalls.evaluate_sites)

    def ping(self, daemon: DaemonKind, level: str, name: str | None = None) -> Authorization:
        """Return whether *daemon* authorizes *level*: READ, WRITE, DAEMON, NEGOTIATOR, ADMINISTRATOR, …

        A denial is returned as an answer and raises no error.
        """
        try:
            answer = self.call("ping", daemon=daemon, level=level, name=name)
        except PoolDenied as exc:
            match = re.search(r"authenticated the client as (\S+) \(by (\w*)\)", exc.reason)
            identity, method = (match[1], match[2]) if match else (None, None)
            advice = self._token_limit_advice(level) if method == "IDTOKENS" else ""
            return Authorization(False, identity, method, exc.reason, advice)
        return Authorization(bool(answer["allowed"]), answer["identity"], answer["method"])

    def advertise(self, ads: Sequence[tuple[str, str]], lifetime: timedelta) -> int | None:
        """Send site ads, each ``(name, text)`` with one ``Name = literal`` a line, to every collector.

        Wait for 3 s at most until the collector returns the ads. Return the time when the collector
        received the last ad, in Unix seconds of the collector's clock. Return None if the ads are not
        visible yet; this is not an error.
        """
        if not ads:
            return None
        seconds = int(lifetime.total_seconds())
        received_at: int | None = self.call("advertise", ads=ads, lifetime=seconds)
        return received_at

    def invalidate(self, names: Sequence[str]) -> None:
        """Remove the site ads with these names; a missing ad is not an error."""
        if names:
            self.call("invalidate", names=names)

    def slots(
        self, attributes: Sequence[str], constraint: str = "true", collector: str | None = None
    ) -> list[Ad]:
        """Return slot ads from the first collector that answers, or from *collector*.

        Each ad has the keys *attributes*, spelled as given. A value is a literal, None, or the text of an
        expression.

        Raises:
            ValueError: *attributes* has one of the long attributes, whose values would be megabytes.
        """
        if long := [name for name in attributes if name.lower() in _LONG_NAMES]:
            raise ValueError(f"attributes whose values are too long for a query of slots: {', '.join(long)}")
        return list(self.call("slots", attributes=attributes, constraint=constraint, collector=collector))
