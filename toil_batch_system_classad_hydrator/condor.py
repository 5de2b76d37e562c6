"""Schedd client with HTCondor's Python bindings (htcondor2); no other module of the package imports them."""

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

_SCHEDD_VARIABLE = "TOIL_HTCONDOR_SCHEDD"
_SUBMIT_ATTRS_VARIABLES = frozenset({"_CONDOR_SUBMIT_ATTRS", "_CONDOR_SUBMIT_EXPRS"})
Ad = dict[str, Any]


class ScheddUnreachable(Exception):
    """The schedd did not answer or was not found; a later call may work."""


class SubmitRejected(Exception):
    """The schedd rejected a job, or the submit description is not valid."""


class Schedd:
    """A client of one schedd: by default the local schedd.

    ``TOIL_HTCONDOR_COLLECTOR`` and ``TOIL_HTCONDOR_SCHEDD`` select another schedd. The client locates the
    schedd again after every failure, because a restarted schedd has another port.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._collector = environment.get("TOIL_HTCONDOR_COLLECTOR")
        self._name = environment.get(_SCHEDD_VARIABLE)
        self._client: Any = None
        _reload_config_without_our_attributes()

    def submit(self, description: Mapping[str, str]) -> int:
        """Submit one job; return its cluster id.

        Raises:
            SubmitRejected: the schedd rejects the job, or *description* is not valid; the text is the reason.
            ScheddUnreachable: the schedd did not answer.
        """
        schedd = self._connect()
        try:
            submit = htcondor2.Submit(dict(description))
            return int(schedd.submit(submit, count=1).cluster())
        except (htcondor2.HTCondorException, OSError, ValueError, RuntimeError) as error:
            self._client = None
            self.query_jobs("no such workflow")  # raises ScheddUnreachable if the schedd does not answer
            raise SubmitRejected(str(error).strip() or type(error).__name__) from error

    def query_jobs(self, workflow_id: str) -> dict[int, Ad]:
        """Query the queue for the jobs of *workflow_id*; return their ads by cluster.

        Raises:
            ScheddUnreachable: the schedd did not answer.
        """
        constraint = f"{WORKFLOW_ATTRIBUTE} =?= {classad_string(workflow_id)}"
        ads = self._call(lambda schedd: schedd.query(constraint, list(PROJECTION)))
        return {int(ad["ClusterId"]): _plain_values(ad) for ad in ads}

    def query_history(self, clusters: Iterable[int]) -> dict[int, Ad]:
        """Query the history for *clusters*, which are no longer in the queue; return their ads by cluster.

        Raises:
            ScheddUnreachable: the schedd did not answer.
        """
        ids = sorted(clusters)
        constraint = _cluster_constraint(ids)
        answer = self._call(lambda schedd: schedd.history(constraint, list(PROJECTION), len(ids)))
        ads = [_plain_values(ad) for ad in answer]
        return {int(ad["ClusterId"]): ad for ad in ads if ad.get("JobStatus") in {COMPLETED, REMOVED}}

    def remove(self, clusters: Iterable[int], reason: str) -> None:
        """Remove jobs from the queue; ignore jobs that are no longer in the queue.

        Raises:
            ScheddUnreachable: the schedd did not answer.
        """
        if constraint := _cluster_constraint(clusters):
            self._call(lambda schedd: schedd.act(htcondor2.JobAction.Remove, constraint, reason))

    def mark_seen(self, clusters: Iterable[int]) -> None:
        """Mark completed jobs as seen by Toil, so that they leave the queue; ignore jobs that left it.

        Raises:
            ScheddUnreachable: the schedd did not answer.
        """
        if constraint := _cluster_constraint(clusters):
            self._call(lambda schedd: schedd.edit(constraint, SEEN_ATTRIBUTE, "true"))

    def _call(self, operation: Any) -> Any:  # noqa: ANN401 - the bindings have no types
        try:
            return operation(self._connect())
        except (htcondor2.HTCondorException, OSError, RuntimeError) as error:
            self._client = None
            raise ScheddUnreachable(
                f"the schedd does not answer: {str(error).strip() or type(error).__name__}"
            ) from error

    def _connect(self) -> Any:  # noqa: ANN401 - the bindings have no types
        if self._client is None:
            try:
                is_remote = self._collector or self._name
                self._client = htcondor2.Schedd(self._locate()) if is_remote else htcondor2.Schedd()
            except (htcondor2.HTCondorException, OSError, RuntimeError, ValueError) as error:
                where = f"schedd {self._name or 'of this machine'}"
                at = f" at collector {self._collector}" if self._collector else ""
                raise ScheddUnreachable(f"{where}{at} cannot be found: {str(error).strip()}") from error
        return self._client

    def _locate(self) -> Any:  # noqa: ANN401 - the bindings have no types
        collector = htcondor2.Collector(self._collector) if self._collector else htcondor2.Collector()
        if self._name:
            return collector.locate(htcondor2.DaemonType.Schedd, self._name)
        schedds = collector.locateAll(htcondor2.DaemonType.Schedd)
        if len(schedds) != 1:
            names = ", ".join(sorted(str(ad.get("Name")) for ad in schedds)) or "none"
            raise ValueError(f"set {_SCHEDD_VARIABLE} to one of the schedds of this collector ({names})")
        return schedds[0]


def _reload_config_without_our_attributes() -> None:
    """Reload the bindings' configuration without the attributes that this package adds to each job.

    Otherwise the bindings would apply ``_CONDOR_SUBMIT_ATTRS`` and add RequiredDatasets also to a job that
    needs no datasets. The environment itself stays unchanged, because Toil passes it on to the workers.
    """
    originals = {name: os.environ[name] for name in os.environ if name.upper() in _SUBMIT_ATTRS_VARIABLES}
    own = {name.lower() for name in JOB_ATTRIBUTES}
    try:
        for name, value in originals.items():
            words = value.replace(",", " ").split()
            os.environ[name] = " ".join(
                word for word in words if word.lower().removeprefix("+").removeprefix("my.") not in own
            )
        htcondor2.reload_config()
    finally:
        os.environ.update(originals)


def _cluster_constraint(clusters: Iterable[int]) -> str:
    return " || ".join(f"ClusterId == {cluster}" for cluster in sorted(clusters))


def _plain_values(ad: Any) -> Ad:  # noqa: ANN401 - the bindings have no types
    """Return the attributes of *ad* in PROJECTION whose value is a number, a string or a boolean."""
    return {name: value for name in PROJECTION if isinstance(value := ad.get(name), (str, int, float, bool))}


__all__ = ["Schedd", "ScheddUnreachable", "SubmitRejected"]
