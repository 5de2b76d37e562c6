"""DDM class for PanDA (JEDI): answers from a classad-hydrator daemon where the input of a task is.

In panda_jedi.cfg, for the VO ``ska``, with 4 processes:

    [ddm]
    modConfig = ska:4:hydrator_panda:HydratorDDMClient

Settings of the daemon's address: see :mod:`hydrator_locality`. HYDRATOR_SITE_MAP may name a JSON file that
maps DDM endpoints, or PanDA sites, to sites of the daemon; others have the same name at the daemon.
HYDRATOR_DEFAULT_SCOPE is the scope of dataset names without one.
"""

import json
import os

from hydrator_locality import LocalityClient, LocalityError
from pandajedi.jediddm.GenDDMClient import GenDDMClient

_DISK, _TAPE = "localdisk", "localtape"


class HydratorAnswers:
    """The methods that the daemon can answer; mix them into the DDM class of a VO to replace its methods."""

    _client = None
    _site_by_name = {}

    def getAvailableFiles(
        self,
        dataset_spec,
        site_endpoint_map,
        site_mapper,
        check_LFC=False,
        check_completeness=True,
        storage_token=None,
        complete_only=False,
        use_vp=True,
        file_scan_in_container=True,
        use_deep=False,
        element_list=None,
    ):
        """Return the files of a dataset by PanDA site and kind of storage.

        A site has all files, or none: the daemon knows how much of a dataset is at a site, not which files.
        An unknown dataset is a temporary failure, never an empty answer.
        """
        names = self._names(dataset_spec.datasetName, element_list)
        try:
            rows = self._read(names)
        except LocalityError as error:
            return self.SC_FAILED, f"getAvailableFiles of {dataset_spec.datasetName}: {error}"
        files = {}
        for site, endpoints in site_endpoint_map.items():
            kinds = {_DISK: [], _TAPE: [], "cache": [], "remote": []}
            kind = self._kind_at(rows, {self._site_of(name) for name in (site, *endpoints)})
            if kind:
                kinds[kind] = list(dataset_spec.Files)
            kinds["all"] = set(dataset_spec.Files) if kind else set()
            files[site] = kinds
        return self.SC_SUCCEEDED, files

    def listDatasetReplicas(
        self,
        datasetName,
        use_vp=False,
        detailed=False,
        skip_incomplete_element=False,
        use_deep=False,
        element_list=None,
    ):
        """Return, by DDM endpoint, how many of the datasets are complete there, and their bytes on disk.

        ``total`` and ``found`` count datasets, because the daemon does not count files.
        """
        try:
            rows = self._read(self._names(datasetName, element_list))
        except LocalityError as error:
            message = f"listDatasetReplicas of {datasetName}: {error}"
            return (self.SC_FAILED, message, None) if detailed else (self.SC_FAILED, message)
        by_dataset = {row["did"]: self._replicas(row, skip_incomplete_element) for row in rows}
        totals = {}
        for replicas in by_dataset.values():
            for endpoint, (one,) in replicas.items():
                totals[endpoint] = [_add(totals[endpoint][0], one) if endpoint in totals else dict(one)]
        for (total,) in totals.values():
            total["total"] = len(rows)
        return (self.SC_SUCCEEDED, totals, by_dataset) if detailed else (self.SC_SUCCEEDED, totals)

    def listReplicasPerDataset(self, datasetName, deepScan=False):
        """Return the replicas of a dataset by its name and by DDM endpoint."""
        try:
            rows = self._read(self._names(datasetName, None))
        except LocalityError as error:
            return self.SC_FAILED, f"listReplicasPerDataset of {datasetName}: {error}"
        return self.SC_SUCCEEDED, {datasetName: self._replicas(rows[0], skip_incomplete=False)}

    # the daemon's answer

    def _read(self, names):
        """Return the daemon's rows about *names*.

        Raises:
            LocalityError: the daemon did not answer, or does not know where one of the datasets is.
        """
        if self._client is None:
            self._site_by_name = _read_site_map(os.environ.get("HYDRATOR_SITE_MAP"))
            self._client = LocalityClient.from_environment()
        rows = list(self._client.find(names))
        for row in rows:
            if not row["polled"]:
                raise LocalityError(
                    f"the daemon does not poll {row['did']}: add it to demand.pins or demand.patterns"
                )
            if row["unseen"] and not row["sites"]:
                raise LocalityError(f"no catalogue answered for {row['did']}: {row['unseen']}")
        return rows

    @staticmethod
    def _kind_at(rows, sites):
        """Return where a PanDA site has all datasets: on disk, on tape, or None."""
        states = [{each["state"] for each in row["sites"] if each["site"] in sites} for row in rows]
        if all("AVAILABLE" in of_dataset for of_dataset in states):
            return _DISK
        if all(of_dataset & {"AVAILABLE", "NEARLINE"} for of_dataset in states):
            return _TAPE
        return None

    def _replicas(self, row, skip_incomplete):
        replicas = {}
        for each in row["sites"]:
            is_complete = each["state"] == "AVAILABLE"
            if is_complete or not skip_incomplete:
                one = {"total": 1, "found": int(is_complete), "tsize": row["bytes"], "asize": each["bytes"]}
                for endpoint in self._endpoints_of(each["site"]):
                    replicas[endpoint] = [{**one, "vp": False, "immutable": 1}]
        return replicas

    # names

    @staticmethod
    def _names(dataset, elements):
        """Return the DIDs of a dataset; of a container with *elements*, those of the elements."""
        scope = os.environ.get("HYDRATOR_DEFAULT_SCOPE")
        names = [name.rstrip("/") for name in elements or [dataset]]
        return [name if ":" in name or not scope else f"{scope}:{name}" for name in names]

    def _site_of(self, name):
        return self._site_by_name.get(name, name)

    def _endpoints_of(self, site):
        return [name for name, mapped in self._site_by_name.items() if mapped == site] or [site]


def _add(total, one):
    """Return the sum of two replicas at one endpoint; None for bytes that are unknown."""
    sums = {
        key: None if total[key] is None or one[key] is None else total[key] + one[key]
        for key in ("found", "tsize", "asize")
    }
    return {**total, **sums}


def _read_site_map(file):
    if not file:
        return {}
    try:
        with open(file, encoding="utf-8") as text:
            return dict(json.load(text))
    except (OSError, ValueError, TypeError) as error:
        raise LocalityError(f"cannot read HYDRATOR_SITE_MAP: {error}") from error


class HydratorDDMClient(HydratorAnswers, GenDDMClient):
    """The DDM class of a VO whose datasets the daemon polls."""

    def __init__(self, con):
        GenDDMClient.__init__(self, con)
        self.pid = os.getpid()
