"""The demo's catalogue in a stand-in for SKA's DMAPI, not the real service.

A site has one disk there, known by Site Capabilities. DMAPI returns locations only. So a dataset in
transfer is the part of its files that has arrived (``PARTIAL``); tape and stuck transfers are not visible.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from .dmapi_standin import CLIENT, DM_AUDIENCE, SECRET, DmapiStandIn
from .files import write_secret

FILES = 4
"""The number of files of a dataset."""


class DmapiHoldings:
    """Holdings of the demo (see `testbed.demo`) in *server*, a stand-in that is up.

    Args:
        server: it has only what is put here.
        folder: for the file with the client's secret, which the daemon reads.
        sites: the sites that have storage.
    """

    on_its_way = "PARTIAL"

    def __init__(self, server: DmapiStandIn, folder: Path, sites: Sequence[str]) -> None:
        self._server = server
        self._held: dict[str, dict[str, int]] = {}
        self._disks = {f"{site}-DISK": site for site in sites}
        self._secret = write_secret(folder / "dmapi-secret", SECRET)
        for disk, site in self._disks.items():
            server.add_area(site, disk)

    def section(self) -> str:
        who = (
            f'token_url = "{self._server.token_url}"\nclient_id = "{CLIENT}"\n'
            f'client_secret_file = "{self._secret}"\n'
        )
        return (
            f'[[catalogue]]\ntype = "dmapi"\nname = "dmapi"\nurl = "{self._server.url}"\n{who}'
            f'\n[site_capabilities]\nurl = "{self._server.capabilities_url}"\n{who}'
        )

    def put(self, did: str, states: Mapping[str, str]) -> None:
        """A new dataset: by site, how it is there; half of its files where it is not whole."""
        count = {"available": FILES, "nearline": 0}
        self._held[did] = {f"{site}-DISK": count.get(state, FILES // 2) for site, state in states.items()}
        self._say(did)

    def send(self, did: str, site: str) -> None:
        self._held[did][f"{site}-DISK"] = FILES // 2
        self._say(did)

    def arrive(self, did: str, site: str) -> None:
        self._held[did][f"{site}-DISK"] = FILES
        self._say(did)

    def leave(self, did: str, site: str) -> None:
        del self._held[did][f"{site}-DISK"]
        self._say(did)

    def available(self) -> dict[str, frozenset[str]]:
        """Return the stand-in's answers, queried over HTTP without the project's adapter."""
        form = {"grant_type": "client_credentials", "audience": DM_AUDIENCE}
        found = {}
        with httpx.Client(trust_env=False, timeout=60) as client:
            given = client.post(self._server.token_url, data=form, auth=(CLIENT, SECRET)).raise_for_status()
            client.headers["Authorization"] = f"Bearer {given.json()['access_token']}"
            for did in self._held:
                path = did.replace(":", "/", 1)
                whole = client.get(f"{self._server.url}/metadata/{path}").raise_for_status().json()["length"]
                places = client.get(f"{self._server.url}/data/locate/{path}").raise_for_status().json()
                found[did] = frozenset(
                    self._disks[place["identifier"]] for place in places if len(place["replicas"]) == whole
                )
        return found

    def _say(self, did: str) -> None:
        self._server.put(did, FILES, dict(self._held[did]))
