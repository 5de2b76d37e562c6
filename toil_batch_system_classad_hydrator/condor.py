"""Schedd client with HTCondor's Python bindings (htcondor2); no other module of the package imports them."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import uuid4

import htcondor2

from .job import (
    COMPLETED,
    JOB_ATTRIBUTES,
    PROJECTION,
    REMOVED,
    SEEN_ATTRIBUTE,
    SUBMISSION_ATTRIBUTE,
    WORKFLOW_ATTRIBUTE,
    classad_string,
)

_SCHEDD_VARIABLE = "TOIL_HTCONDOR_SCHEDD"
_SUBMIT_ATTRS_VARIABLES = frozenset({"_CONDOR_SUBMIT_ATTRS", "_CONDOR_SUBMIT_EXPRS"})


class ScheddUnreachable(Exception):
    """The schedd did not answer or was not found; a later call may work."""


class SubmitRejected(Exception):
    """The schedd rejected a job, or the submit description is not valid."""


class Schedd:
    """A client of one schedd: by default the local schedd.

    ``TOIL_HTCONDOR_COLLECTOR`` and ``TOIL_HTCONDOR_SCHEDD`` select another schedd. The client locates the
    schedd again after every failure, because a restarted schedd has another port.

    If the answer to a submission is lost, the schedd may have the job. Each job has a unique mark, by which
    the client finds such a job: it takes the job that a repeated submission would make again, and removes
    one that appears later.
    """

    def __init__(self, environment: Mapping[str, str], client: Callable[[], Any] | None = None) -> None:
        self._collector = environment.get("TOIL_HTCONDOR_COLLECTOR")
        self._name = environment.get(_SCHEDD_VARIABLE)
        self._make_client = client or self._locate
        self._client: Any = None
        self._leader = uuid4().hex
        self.doubtful: dict[str, int | None] = {}
        """The marks of submissions without an answer, each with the job that was taken."""
        _reload_config_without_our_attributes()

    def submit(self, description: Mapping[str, str], job: int) -> int:
        """Submit Toil's *job*; return its cluster id. A repeated call returns a cluster of an earlier call.

        Raises:
            SubmitRejected: the schedd rejects the job, or *description* is not valid; the text is the reason.
            ScheddUnreachable: the schedd did not answer; call again.
        """
        mark = f"{self._leader}.{job}"
        if mark in self.doubtful and (cluster := self._take(mark)):
            return cluster
        schedd = self._connect()
        try:
            submit = htcondor2.Submit({**description, f"MY.{SUBMISSION_ATTRIBUTE}": classad_string(mark)})
            cluster = int(schedd.submit(submit, count=1).cluster())
        except (htcondor2.HTCondorException, OSError, ValueError, RuntimeError) as error:
            self._client = None
            self.doubtful[mark] = None
            if cluster := self._take(mark):
                return cluster
            raise SubmitRejected(str(error).strip() or type(error).__name__) from error
        if mark in self.doubtful:
            self.doubtful[mark] = cluster
        return cluster

    def _take(self, mark: str) -> int | None:
        """Find the job with *mark* in the queue; return its cluster id."""
        constraint = f"{_has(SUBMISSION_ATTRIBUTE, mark)} && JobStatus != {REMOVED}"
        ads = self._call(lambda schedd: schedd.query(constraint, ["ClusterId"]))
        self.doubtful[mark] = min((int(ad["ClusterId"]) for ad in ads), default=None)
        return self.doubtful[mark]

    def query_jobs(self, workflow_id: str) -> dict[int, dict[str, Any]]:
        """Query the queue for the jobs of *workflow_id*; return their ads by cluster.

        Remove a job from the queue whose submission had no answer, if it was not taken.

        Raises:
            ScheddUnreachable: the schedd did not answer.
        """
        constraint = _has(WORKFLOW_ATTRIBUTE, workflow_id)
        ads = self._call(lambda schedd: schedd.query(constraint, list(PROJECTION)))
        jobs = {int(ad["ClusterId"]): _plain_values(ad) for ad in ads}
        marks = {cluster: str(ad.get(SUBMISSION_ATTRIBUTE)) for cluster, ad in jobs.items()}
        strays = [cluster for cluster, mark in marks.items() if self.doubtful.get(mark, cluster) != cluster]
        self.remove(strays, "the answer to its submission was lost")
        return jobs

    def query_history(self, clusters: Iterable[int]) -> dict[int, dict[str, Any]]:
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

    def remove_workflow(self, workflow_id: str, reason: str) -> None:
        """Remove all jobs of *workflow_id* from the queue whose end Toil has not seen.

        Raises:
            ScheddUnreachable: the schedd did not answer.
        """
        constraint = f'{_has(WORKFLOW_ATTRIBUTE, workflow_id)} && unparse({SEEN_ATTRIBUTE}) != "true"'
        self._call(lambda schedd: schedd.act(htcondor2.JobAction.Remove, constraint, reason))

    def mark_seen(self, cluster: int) -> None:
        """Mark a completed job as seen by Toil, so that it leaves the queue; ignore a job that left it.

        Raises:
            ScheddUnreachable: the schedd did not answer.
        """
        self._call(lambda schedd: schedd.edit(_cluster_constraint([cluster]), SEEN_ATTRIBUTE, "true"))

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
                self._client = self._make_client()
            except (htcondor2.HTCondorException, OSError, RuntimeError, ValueError) as error:
                where = f"schedd {self._name or 'of this machine'}"
                at = f" at collector {self._collector}" if self._collector else ""
                raise ScheddUnreachable(f"{where}{at} cannot be found: {str(error).strip()}") from error
        return self._client

    def _locate(self) -> Any:  # noqa: ANN401 - the bindings have no types
        if not (self._collector or self._name):
            return htcondor2.Schedd()
        collector = htcondor2.Collector(self._collector) if self._collector else htcondor2.Collector()
        if self._name:
            return htcondor2.Schedd(collector.locate(htcondor2.DaemonType.Schedd, self._name))
        schedds = collector.locateAll(htcondor2.DaemonType.Schedd)
        if len(schedds) != 1:
            names = ", ".join(sorted(str(ad.get("Name")) for ad in schedds)) or "none"
            raise ValueError(f"set {_SCHEDD_VARIABLE} to one of the schedds of this collector ({names})")
        return htcondor2.Schedd(schedds[0])


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


def _has(attribute: str, text: str) -> str:
    """Return the constraint that *attribute* of a job is *text*.

    Other users can write the attribute too, and a schedd before 25.13.2 evaluates ``+X = false ? {} : X``
    without end.
    """
    return f"unparse({attribute}) == {classad_string(classad_string(text))}"


def _cluster_constraint(clusters: Iterable[int]) -> str:
    return " || ".join(f"ClusterId == {cluster}" for cluster in sorted(clusters))


def _plain_values(ad: Any) -> dict[str, Any]:  # noqa: ANN401 - the bindings have no types
    """Return the attributes of *ad* in PROJECTION whose value is a number, a string or a boolean."""
    return {name: value for name in PROJECTION if isinstance(value := ad.get(name), (str, int, float, bool))}
