# SPDX-License-Identifier: Apache-2.0
"""DDM class for PanDA (JEDI): answers from a classad-hydrator daemon where the input of a task is.

In panda_jedi.cfg, for the VO ``ska``, with 4 processes:

    [ddm]
    modConfig = ska:4:hydrator_panda:HydratorDDMClient

It asks ``GET /v1/datasets`` at the address in HYDRATOR_URL. HYDRATOR_TOKEN_FILE may name a file with a
token of role ``read``, HYDRATOR_CA_CERT a file with CA certificates. HYDRATOR_SITE_MAP may name a JSON file
that maps DDM endpoints, or PanDA sites, to sites of the daemon; others have the same name at the daemon.
HYDRATOR_DEFAULT_SCOPE is the scope of dataset names without one.
"""

import http.client
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request

from pandajedi.jediddm.GenDDMClient import GenDDMClient

_DISK, _TAPE = "localdisk", "localtape"
_MAX_QUERY_CHARS = 6000
"""The daemon accepts a URL of 8,192 bytes."""
_TIMEOUT_SECONDS = 60


class _NoAnswerError(Exception):
    """The daemon did not answer, or does not know where a dataset is; the text is one sentence."""


class HydratorAnswers:
    """The methods that the daemon can answer; mix them into the DDM class of a VO to replace its methods."""

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
        try:
            rows = _read(dataset_spec.datasetName, element_list)
            site_by_name = _read_site_map()
        except _NoAnswerError as error:
            return self.SC_FAILED, f"getAvailableFiles of {dataset_spec.datasetName}: {error}"
        files = {}
        for site, endpoints in site_endpoint_map.items():
            kinds = {_DISK: [], _TAPE: [], "cache": [], "remote": []}
            kind = _kind_at(rows, {site_by_name.get(name, name) for name in (site, *endpoints)})
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
            rows = _read(datasetName, element_list)
            site_by_name = _read_site_map()
        except _NoAnswerError as error:
            message = f"listDatasetReplicas of {datasetName}: {error}"
            return (self.SC_FAILED, message, None) if detailed else (self.SC_FAILED, message)
        by_dataset = {row["did"]: _replicas(row, site_by_name, skip_incomplete_element) for row in rows}
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
            (row,) = _read(datasetName, None)
            replicas = _replicas(row, _read_site_map(), skip_incomplete=False)
        except _NoAnswerError as error:
            return self.SC_FAILED, f"listReplicasPerDataset of {datasetName}: {error}"
        return self.SC_SUCCEEDED, {datasetName: replicas}


class HydratorDDMClient(HydratorAnswers, GenDDMClient):
    """The DDM class of a VO whose datasets the daemon polls."""

    def __init__(self, con):
        GenDDMClient.__init__(self, con)
        self.pid = os.getpid()


def _read(dataset, elements):
    """Return the daemon's rows about *dataset*; about a container with *elements*, those of the elements.

    Raises:
        _NoAnswerError: the daemon did not answer, or does not know where one of the datasets is.
    """
    scope = os.environ.get("HYDRATOR_DEFAULT_SCOPE")
    names = {name.rstrip("/") for name in elements or [dataset]}
    dids = sorted(name if ":" in name or not scope else f"{scope}:{name}" for name in names)
    rows = []
    query = ""
    for did in dids:
        part = f"did={urllib.parse.quote(did, safe=':/@=+')}"
        if query and len(query) + len(part) > _MAX_QUERY_CHARS:
            rows += _ask(query)
            query = ""
        query = f"{query}&{part}" if query else part
    rows += _ask(query)
    for row in rows:
        if not row["demanded"]:
            raise _NoAnswerError(
                f"the daemon does not poll {row['did']}: add it to demand.pins or demand.patterns"
            )
        if row["unseen"] and not row["sites"]:
            raise _NoAnswerError(f"no catalogue answered for {row['did']}: {row['unseen']}")
    return rows


def _ask(query):
    url = os.environ.get("HYDRATOR_URL", "").rstrip("/")
    token_file = os.environ.get("HYDRATOR_TOKEN_FILE")
    if not url.startswith("https://" if token_file else ("https://", "http://")):
        raise _NoAnswerError("set HYDRATOR_URL to the address of the daemon; with a token, to one with https")
    try:
        request = urllib.request.Request(f"{url}/v1/datasets?{query}")  # noqa: S310 - checked
        if token_file:
            with open(token_file, encoding="utf-8") as file:
                request.add_header("Authorization", f"Bearer {file.read().strip()}")
        tls = ssl.create_default_context(cafile=os.environ.get("HYDRATOR_CA_CERT") or None)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=tls) as answer:  # noqa: S310
            return json.load(answer)["datasets"]
    except urllib.error.HTTPError as error:
        with error:
            raise _NoAnswerError(f"{url} answered {error.code} {error.reason}") from error
    except (OSError, LookupError, TypeError, ValueError, http.client.HTTPException) as error:
        raise _NoAnswerError(f"{url} gave no answer: {error}") from error


def _kind_at(rows, sites):
    """Return where a PanDA site has all datasets: on disk, on tape, or None."""
    states = [{each["state"] for each in row["sites"] if each["site"] in sites} for row in rows]
    if all("AVAILABLE" in of_dataset for of_dataset in states):
        return _DISK
    if all(of_dataset & {"AVAILABLE", "NEARLINE"} for of_dataset in states):
        return _TAPE
    return None


def _replicas(row, site_by_name, skip_incomplete):
    """Return the replicas of one dataset by DDM endpoint."""
    replicas = {}
    for each in row["sites"]:
        is_complete = each["state"] == "AVAILABLE"
        if is_complete or not skip_incomplete:
            size, fraction = row["bytes"], 1.0 if is_complete else each["fraction"]
            on_disk = None if size is None or fraction is None else int(size * fraction)
            one = {"total": 1, "found": int(is_complete), "tsize": size, "asize": on_disk}
            endpoints = [name for name, site in site_by_name.items() if site == each["site"]]
            for endpoint in endpoints or [each["site"]]:
                replicas[endpoint] = [{**one, "vp": False, "immutable": 1}]
    return replicas


def _add(total, one):
    """Return the sum of two replicas at one endpoint; None for bytes that are unknown."""
    sums = {
        key: None if total[key] is None or one[key] is None else total[key] + one[key]
        for key in ("found", "tsize", "asize")
    }
    return {**total, **sums}


def _read_site_map():
    file = os.environ.get("HYDRATOR_SITE_MAP")
    if not file:
        return {}
    try:
        with open(file, encoding="utf-8") as text:
            return dict(json.load(text))
    except (OSError, ValueError, TypeError) as error:
        raise _NoAnswerError(f"cannot read HYDRATOR_SITE_MAP: {error}") from error
