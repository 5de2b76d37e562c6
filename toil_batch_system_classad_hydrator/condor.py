"""The schedd, by the current bindings: the only module here that imports them."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import htcondor2

from .job import (
    COMPLETED,
    JOB_ATTRIBUTES,
    PROJECTION,
    REMOVED,
    SEEN_ATTRIBUTE,
    WORKFLOW_ATTRIBUTE,
    classad_string,
)

COLLECTOR_VARIABLE, SCHEDD_VARIABLE = "TOIL_HTCONDOR_COLLECTOR", "TOIL_HTCONDOR_SCHEDD"
_SUBMIT_ATTRS_VARIABLES = frozenset({"_CONDOR_SUBMIT_ATTRS", "_CONDOR_SUBMIT_EXPRS"})
Ad = dict[str, Any]


class ScheddUnreachable(Exception):
    """The schedd did not answer; it may answer later."""


class SubmitRejected(Exception):
    """The schedd is there and does not take this job."""


class Schedd:
    """One schedd: the local one, or the one that ``TOIL_HTCONDOR_COLLECTOR`` and ``_SCHEDD`` name.

    It is looked up again after every failure, because it comes back on another port.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._collector = environment.get(COLLECTOR_VARIABLE) or None
        self._name = environment.get(SCHEDD_VARIABLE) or None
        self._client: Any = None
        _reload_config_without_our_attributes()

    def submit(self, description: Mapping[str, str]) -> int:
        """Submit one job; returns its cluster.

        Raises:
            Refused: the schedd, or the submit language, does not take it; the text is their reason.
            ScheddAway: nobody answered.
        """
        schedd = self._connect()
        try:
            submit = htcondor2.Submit(dict(description))
            return int(schedd.submit(submit, count=1).cluster())
        except (htcondor2.HTCondorException, OSError, ValueError, RuntimeError) as failed:
            self._client = None
            self.query_jobs("no such workflow")  # raises ScheddAway where that is the reason
            raise SubmitRejected(str(failed).strip() or type(failed).__name__) from failed

    def query_jobs(self, workflow_id: str) -> dict[int, Ad]:
        """What the queue says of the jobs of *workflow*, by cluster.

        Raises:
            ScheddAway: nobody answered.
        """
        constraint = f"{WORKFLOW_ATTRIBUTE} =?= {classad_string(workflow_id)}"
        found = self._call(lambda schedd: schedd.query(constraint, list(PROJECTION)))
        return {int(ad["ClusterId"]): _plain_values(ad) for ad in found}

    def query_history(self, clusters: Iterable[int]) -> dict[int, Ad]:
        """What the history says of *clusters* that left the queue; nothing where it cannot be read.

        Raises:
            ScheddAway: nobody answered.
        """
        wanted = sorted(clusters)
        constraint = _cluster_constraint(wanted)
        found = self._call(lambda schedd: schedd.history(constraint, list(PROJECTION), len(wanted)))
        ads = [_plain_values(ad) for ad in found]
        return {int(ad["ClusterId"]): ad for ad in ads if ad.get("JobStatus") in {COMPLETED, REMOVED}}

    def remove(self, clusters: Iterable[int], reason: str) -> None:
        """Remove jobs; those that are not there any more are no error.

        Raises:
            ScheddAway: nobody answered.
        """
        wanted = sorted(clusters)
        if wanted:
            constraint = _cluster_constraint(wanted)
            self._call(lambda schedd: schedd.act(htcondor2.JobAction.Remove, constraint, reason))

    def mark_seen(self, clusters: Iterable[int]) -> None:
        """Let completed jobs leave the queue for the history; those that are not there are no error.

        Raises:
            ScheddAway: nobody answered.
        """
        wanted = sorted(clusters)
        if wanted:
            constraint = _cluster_constraint(wanted)
            self._call(lambda schedd: schedd.edit(constraint, SEEN_ATTRIBUTE, "true"))

    def _call(self, operation: Any) -> Any:  # noqa: ANN401 - the bindings have no types
        try:
            return operation(self._connect())
        except (htcondor2.HTCondorException, OSError, RuntimeError) as failed:
            self._client = None
            raise ScheddUnreachable(
                f"the schedd does not answer: {str(failed).strip() or type(failed).__name__}"
            ) from failed

    def _connect(self) -> Any:  # noqa: ANN401 - the bindings have no types
        if self._client is None:
            try:
                self._client = htcondor2.Schedd(self._locate()) if self._is_remote else htcondor2.Schedd()
            except (htcondor2.HTCondorException, OSError, RuntimeError, ValueError) as failed:
                where = f"schedd {self._name or 'of this machine'}"
                at = f" at collector {self._collector}" if self._collector else ""
                raise ScheddUnreachable(f"{where}{at} cannot be found: {str(failed).strip()}") from failed
        return self._client

    @property
    def _is_remote(self) -> bool:
        return bool(self._collector or self._name)

    def _locate(self) -> Any:  # noqa: ANN401 - the bindings have no types
        collector = htcondor2.Collector(self._collector) if self._collector else htcondor2.Collector()
        if self._name:
            return collector.locate(htcondor2.DaemonType.Schedd, self._name)
        found = collector.locateAll(htcondor2.DaemonType.Schedd)
        if len(found) != 1:
            names = ", ".join(sorted(str(ad.get("Name")) for ad in found)) or "none"
            raise ValueError(f"set {SCHEDD_VARIABLE} to choose one of its schedds ({names})")
        return found[0]


def _reload_config_without_our_attributes() -> None:
    """Have the bindings read their configuration without the attributes that we give to each job.

    ``_CONDOR_SUBMIT_ATTRS`` makes them add RequiredDatasets to every job, also to one that is to have none.
    The environment itself stays as it was: Toil hands it on to the workers.
    """
    listed = {name: os.environ[name] for name in os.environ if name.upper() in _SUBMIT_ATTRS_VARIABLES}
    ours = {name.lower() for name in JOB_ATTRIBUTES}
    try:
        for name, value in listed.items():
            words = value.replace(",", " ").split()
            os.environ[name] = " ".join(
                word for word in words if word.lower().removeprefix("+").removeprefix("my.") not in ours
            )
        htcondor2.reload_config()
    finally:
        os.environ.update(listed)


def _cluster_constraint(clusters: Iterable[int]) -> str:
    return " || ".join(f"ClusterId == {cluster}" for cluster in clusters)


def _plain_values(ad: Any) -> Ad:  # noqa: ANN401 - the bindings have no types
    """The attributes that have a value: numbers, strings and booleans."""
    return {name: value for name in PROJECTION if isinstance(value := ad.get(name), (str, int, float, bool))}


__all__ = ["Schedd", "ScheddUnreachable", "SubmitRejected"]
