"""Catalogue contract for the file catalogue, in TOML and in JSON."""

import json
from pathlib import Path

import pytest

from adapters.files.catalogue import FileCatalogue
from hydrator.domain.model import Did, Replica, Site
from hydrator.testing.catalogue_contract import CatalogueContract
from hydrator.testing.scenarios import RECORDS_STATES_ONLY
from tests.factories import NOON

Table = dict[Did, dict[Site, list[dict[str, object]]]]


def table(replicas: tuple[Replica, ...]) -> Table:
    found: Table = {}
    for replica in replicas:
        entry: dict[str, object] = {"state": replica.state.lower()}
        if replica.fraction is not None:
            entry["fraction"] = replica.fraction
        found.setdefault(replica.did, {}).setdefault(replica.site, []).append(entry)
    return found


def toml(found: Table) -> str:
    lines = ["[datasets]"]
    for did, sites in found.items():
        lines.append(f'[datasets."{did}"]')
        for site, entries in sites.items():
            written = (", ".join(f"{key} = {json.dumps(value)}" for key, value in e.items()) for e in entries)
            lines.append(f'sites."{site}" = [{", ".join(f"{{ {one} }}" for one in written)}]')
    return "\n".join(lines)


class FileContract(CatalogueContract):
    cannot_happen = RECORDS_STATES_ONLY

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_failing_catalogue(self) -> FileCatalogue:
        return FileCatalogue("files", self.folder / "none.toml", lambda: NOON)

    def make_garbled_catalogue(self) -> FileCatalogue:
        path = self.folder / "garbled.toml"
        path.write_text(toml({self.did("L1"): {Site("CAM"): [{"state": "?"}]}}))
        return FileCatalogue("files", path, lambda: NOON)


class TestTomlCatalogue(FileContract):
    def make_catalogue(self, *replicas: Replica) -> FileCatalogue:
        path = self.folder / "datasets.toml"
        path.write_text(toml(table(replicas)))
        return FileCatalogue("files", path, lambda: NOON)


class TestJsonCatalogue(FileContract):
    def make_catalogue(self, *replicas: Replica) -> FileCatalogue:
        path = self.folder / "datasets.json"
        datasets = {did: {"sites": sites} for did, sites in table(replicas).items()}
        path.write_text(json.dumps({"count": len(datasets), "datasets": datasets}))
        return FileCatalogue("files", path, lambda: NOON)
