"""Ask PanDA's own DDM interface and its generic job broker, in PanDA's Python; print their answers as JSON.

PanDA's database is a stand-in: the task buffer below returns what the broker asks for. The specifications of
tasks, datasets, files, sites and endpoints are PanDA's classes.

    python panda_broker.py '{"dataset": "lofar:L1", "files": 2, "sites": {"ANALY_UK": ["UK_DISK"]}}'
"""

import json
import sys

from pandajedi.jedibrokerage.GenJobBroker import GenJobBroker
from pandajedi.jedicore.Interaction import JEDITemporaryError
from pandajedi.jediddm.DDMInterface import DDMInterface
from pandaserver.taskbuffer.DdmSpec import DdmSpec
from pandaserver.taskbuffer.InputChunk import InputChunk
from pandaserver.taskbuffer.JediDatasetSpec import JediDatasetSpec
from pandaserver.taskbuffer.JediFileSpec import JediFileSpec
from pandaserver.taskbuffer.JediTaskSpec import JediTaskSpec
from pandaserver.taskbuffer.SiteSpec import SiteSpec


def build_site(name: str, endpoints: list[str]) -> SiteSpec:
    spec, storage = SiteSpec(), DdmSpec()
    for endpoint in endpoints:
        relation = {"ddm_endpoint_name": endpoint, "is_local": "Y", "default_read": "Y", "default_write": "Y"}
        storage.add({**relation, "is_tape": "N"}, {endpoint: {}})
    spec.sitename, spec.nickname, spec.unified_name, spec.status = name, name, name, "online"
    spec.maxtime = spec.mintime = spec.space = 0
    spec.coreCount, spec.catchall = 1, "allow_no_pilot"
    spec.ddm_endpoints_input = spec.ddm_endpoints_output = {"default": storage}
    return spec


def build_dataset(name: str, count: int) -> JediDatasetSpec:
    dataset = JediDatasetSpec()
    dataset.jediTaskID, dataset.datasetID, dataset.datasetName, dataset.type = 1, 1, name, "input"
    dataset.masterID = None
    for number in range(count):
        file = JediFileSpec()
        file.fileID, file.lfn, file.scope, file.GUID = number, f"file{number}", "lofar", str(number)
        file.fsize = 1
        dataset.Files.append(file)
    return dataset


class SiteMapper:
    """Stand-in for the sites in PanDA's database."""

    def __init__(self, sites: dict[str, SiteSpec]) -> None:
        self._sites = sites

    def getCloud(self, _):
        return {"sites": sorted(self._sites)}

    def checkSite(self, name):
        return name in self._sites

    def getSite(self, name):
        return self._sites[name]


class TaskBuffer:
    """Stand-in for PanDA's database: no job has run anywhere."""

    def __init__(self, mapper: SiteMapper) -> None:
        self._mapper = mapper

    def get_site_mapper(self):
        return self._mapper

    def getCurrentSiteData(self):
        return {}

    def getSitesUsedByTask_JEDI(self, _):
        return True, set()

    def getJobStatisticsByGlobalShare(self, _):
        return True, {}


def main(question: dict) -> dict:
    sites = {name: build_site(name, endpoints) for name, endpoints in question["sites"].items()}
    mapper = SiteMapper(sites)
    interfaces = DDMInterface()
    interfaces.setupInterface()
    ddm = interfaces.getInterface("ska")
    dataset = build_dataset(question["dataset"], question["files"])
    try:
        files = ddm.getAvailableFiles(
            dataset, question["sites"], mapper, element_list=question.get("elements")
        )
        replicas = ddm.listDatasetReplicas(question["dataset"])
        listed, detailed = ddm.listDatasetReplicas(
            question["dataset"], detailed=True, element_list=question.get("elements")
        )
        by_dataset = ddm.listReplicasPerDataset(question["dataset"])
    except JEDITemporaryError as error:
        return {"refused": str(error)}
    answer = {
        "files": {
            site: {kind: sorted(file.lfn for file in held) for kind, held in kinds.items() if held}
            for site, kinds in files.items()
        },
        "replicas": replicas,
        "listed": listed,
        "detailed": detailed,
        "by_dataset": by_dataset,
    }
    return {**answer, **(run_broker(ddm, mapper, dataset) if question.get("broker") else {})}


def run_broker(ddm, mapper: SiteMapper, dataset: JediDatasetSpec) -> dict:
    """Return the sites that PanDA's generic job broker finds for a task that reads *dataset*."""
    task = JediTaskSpec()
    task.jediTaskID, task.vo, task.prodSourceLabel, task.cloud = 1, "ska", "managed", "SKA"
    task.coreCount = 1
    chunk = InputChunk(task, dataset)
    status, _ = GenJobBroker(ddm, TaskBuffer(mapper)).doBrokerage(task, "SKA", chunk, {"cloud": "SKA"})
    return {
        "status": status.value,
        "candidates": {
            name: sorted(candidate.localDiskFiles) for name, candidate in chunk.siteCandidates.items()
        },
    }


print("ANSWER", json.dumps(main(json.loads(sys.argv[1]))), flush=True)
