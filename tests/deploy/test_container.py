"""The image, built and run without a registry: a Debian made by the tests replaces its base image."""

import os
import re
from pathlib import Path

import httpx
import pytest

from testbed import container
from testbed.patience import wait_for
from testbed.ports import free_port
from tests.deploy.chart import container as of_the_chart
from tests.deploy.chart import example, objects
from tests.parts import needs

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> tuple[Path, dict]:
    """Return the folder of the image and its configuration; CI must have it."""
    store = tmp_path_factory.mktemp("image")
    store.chmod(0o755)
    with needs("container image"):
        return store, container.build(store)


def test_image_runs_the_command_of_the_chart(image):
    _, config = image
    assert config["User"] == "10001:10001"
    chart = of_the_chart(objects(example("glideins")))
    assert (config["Entrypoint"], config["Cmd"]) == (chart["command"], chart["args"])


def test_image_serves_what_the_pod_probes_from_a_read_only_root_without_capabilities(image, tmp_path):
    store, config = image
    port = free_port()
    etc, state = tmp_path / "etc", tmp_path / "state"
    etc.mkdir()
    state.mkdir()
    for name, text in objects(example("glideins"))["ConfigMap"]["data"].items():
        (etc / name).write_text(text)
    (state / "tokens").touch(0o600)
    for path in (state, state / "tokens"):
        os.chown(path, 10001, 10001)
    chart = of_the_chart(objects(example("glideins")))
    given = {item["name"]: item["value"] for item in chart["env"]}
    given |= {"HYDRATOR_PUBLISH__HTTP__HOST": "127.0.0.1", "HYDRATOR_PUBLISH__HTTP__PORT": str(port)}
    mounts = {"/etc/classad-hydrator": etc, "/var/lib/classad-hydrator": state}
    probes = [chart[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")]
    with container.running(store, config, mounts, given) as process:

        def status(path: str) -> int:
            assert process.poll() is None, (store / "log").read_text()[-2000:]
            try:
                return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False).status_code
            except httpx.TransportError:
                return 0

        wait_for(lambda: [status(path) for path in probes] == [200] * 3, "the daemon in the container")
        assert status("/v1/sites/UK/ad") == 401  # it has read tokens_file
        process_status = _status_of(state)
        assert set(re.findall(r"^Uid:\t(.*)$", process_status, re.MULTILINE)) == {"\t".join(4 * ["10001"])}
        assert set(re.findall(r"^Cap\w+:\t(\w+)", process_status, re.MULTILINE)) == {16 * "0"}
        assert re.findall(r"^NoNewPrivs:\t(\d)", process_status, re.MULTILINE) == ["1"]
        assert "ro" in _root_of(state)
    assert 'AvailableDatasets = {"lofar:L1"}' in (state / "ads" / "UK.ad").read_text()


def _daemon(state: Path) -> Path:
    """Return the /proc folder of the process that has the state of this container open."""
    wanted = (state / "state.sqlite").stat()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = [handle.stat() for handle in (process / "fd").iterdir()]
        except OSError:
            continue
        if any((one.st_dev, one.st_ino) == (wanted.st_dev, wanted.st_ino) for one in files):
            return process
    raise AssertionError("no process has the state open")


def _status_of(state: Path) -> str:
    return (_daemon(state) / "status").read_text()


def _root_of(state: Path) -> list[str]:
    """Return the mount options of the daemon's root."""
    mounts = (line.split() for line in (_daemon(state) / "mountinfo").read_text().splitlines())
    [options] = [fields[5].split(",") for fields in mounts if fields[4] == "/"]
    return options
