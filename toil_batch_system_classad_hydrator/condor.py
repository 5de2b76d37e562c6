"""The schedd, by the current bindings: the only module here that imports them."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import htcondor2

from .job import CARRIED, COMPLETED, PROJECTION, REMOVED, SEEN, WORKFLOW, string

COLLECTOR, SCHEDD = "TOIL_HTCONDOR_COLLECTOR", "TOIL_HTCONDOR_SCHEDD"
_LISTS = frozenset({"_CONDOR_SUBMIT_ATTRS", "_CONDOR_SUBMIT_EXPRS"})
Ad = dict[str, Any]


class ScheddAway(Exception):
    """The schedd did not answer; it may answer later."""


class Refused(Exception):
    """The schedd is there and does not take this job."""


class Schedd:
    """One schedd: the local one, or the one that ``TOIL_HTCONDOR_COLLECTOR`` and ``_SCHEDD`` name.

    It is looked up again after every failure, because it comes back on another port.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._collector = environment.get(COLLECTOR) or None
        self._name = environment.get(SCHEDD) or None
        self._found: Any = None
        _leave_attributes_to_us()

    def submit(self, description: Mapping[str, str]) -> int:
        """Submit one job; returns its cluster.

        Raises:
            Refused: the schedd, or the submit language, does not take it; the text is their reason.
            ScheddAway: nobody answered.
        """
        schedd = self._schedd()
        try:
            submit = htcondor2.Submit(dict(description))
            return int(schedd.submit(submit, count=1).cluster())
        except (htcondor2.HTCondorException, OSError, ValueError, RuntimeError) as failed:
            self._found = None
            self.jobs("no such workflow")  # raises ScheddAway where that is the reason
            raise Refused(str(failed).strip() or type(failed).__name__) from failed

    def jobs(self, workflow: str) -> dict[int, Ad]:
        """What the queue says of the jobs of *workflow*, by cluster.

        Raises:
            ScheddAway: nobody answered.
        """
        constraint = f"{WORKFLOW} =?= {string(workflow)}"
        found = self._ask(lambda schedd: schedd.query(constraint, list(PROJECTION)))
        return {int(ad["ClusterId"]): _values(ad) for ad in found}

    def past(self, clusters: Iterable[int]) -> dict[int, Ad]:
        """What the history says of *clusters* that left the queue; nothing where it cannot be read.

        Raises:
            ScheddAway: nobody answered.
        """
        wanted = sorted(clusters)
        constraint = _any_of(wanted)
        found = self._ask(lambda schedd: schedd.history(constraint, list(PROJECTION), len(wanted)))
        ads = [_values(ad) for ad in found]
        return {int(ad["ClusterId"]): ad for ad in ads if ad.get("JobStatus") in {COMPLETED, REMOVED}}

    def remove(self, clusters: Iterable[int], reason: str) -> None:
        """Remove jobs; those that are not there any more are no error.

        Raises:
            ScheddAway: nobody answered.
        """
        wanted = sorted(clusters)
        if wanted:
            constraint = _any_of(wanted)
            self._ask(lambda schedd: schedd.act(htcondor2.JobAction.Remove, constraint, reason))

    def release(self, clusters: Iterable[int]) -> None:
        """Let completed jobs leave the queue for the history; those that are not there are no error.

        Raises:
            ScheddAway: nobody answered.
        """
        wanted = sorted(clusters)
        if wanted:
            constraint = _any_of(wanted)
            self._ask(lambda schedd: schedd.edit(constraint, SEEN, "true"))

    def _ask(self, question: Any) -> Any:  # noqa: ANN401 - the bindings have no types
        try:
            return question(self._schedd())
        except (htcondor2.HTCondorException, OSError, RuntimeError) as failed:
            self._found = None
            raise ScheddAway(
                f"the schedd does not answer: {str(failed).strip() or type(failed).__name__}"
            ) from failed

    def _schedd(self) -> Any:  # noqa: ANN401 - the bindings have no types
        if self._found is None:
            try:
                self._found = htcondor2.Schedd(self._located()) if self._remote else htcondor2.Schedd()
            except (htcondor2.HTCondorException, OSError, RuntimeError, ValueError) as failed:
                where = f"schedd {self._name or 'of this machine'}"
                at = f" at collector {self._collector}" if self._collector else ""
                raise ScheddAway(f"{where}{at} cannot be found: {str(failed).strip()}") from failed
        return self._found

    @property
    def _remote(self) -> bool:
        return bool(self._collector or self._name)

    def _located(self) -> Any:  # noqa: ANN401 - the bindings have no types
        collector = htcondor2.Collector(self._collector) if self._collector else htcondor2.Collector()
        if self._name:
            return collector.locate(htcondor2.DaemonType.Schedd, self._name)
        found = collector.locateAll(htcondor2.DaemonType.Schedd)
        if len(found) != 1:
            names = ", ".join(sorted(str(ad.get("Name")) for ad in found)) or "none"
            raise ValueError(f"set {SCHEDD} to choose one of its schedds ({names})")
        return found[0]


def _leave_attributes_to_us() -> None:
    """Have the bindings read their configuration without the attributes that we give to each job.

    ``_CONDOR_SUBMIT_ATTRS`` makes them add RequiredDatasets to every job, also to one that is to have none.
    The environment itself stays as it was: Toil hands it on to the workers.
    """
    listed = {name: os.environ[name] for name in os.environ if name.upper() in _LISTS}
    ours = {name.lower() for name in CARRIED}
    try:
        for name, value in listed.items():
            words = value.replace(",", " ").split()
            os.environ[name] = " ".join(
                word for word in words if word.lower().removeprefix("+").removeprefix("my.") not in ours
            )
        htcondor2.reload_config()
    finally:
        os.environ.update(listed)


def _any_of(clusters: Iterable[int]) -> str:
    return " || ".join(f"ClusterId == {cluster}" for cluster in clusters)


def _values(ad: Any) -> Ad:  # noqa: ANN401 - the bindings have no types
    """The attributes that have a value: numbers, strings and booleans."""
    return {name: value for name in PROJECTION if isinstance(value := ad.get(name), (str, int, float, bool))}


__all__ = ["Refused", "Schedd", "ScheddAway"]
