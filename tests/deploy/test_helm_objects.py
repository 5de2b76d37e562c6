"""Objects of the chart, checked without a cluster: Kubernetes' schemas, and a daemon that starts."""

import json
import re
from pathlib import Path

import pytest

from testbed import helm, kubernetes
from tests.deploy.chart import CHART, EXAMPLES, MINIMAL, container, example, objects, pod
from tests.pages import script
from tests.parts import needs

pytestmark = pytest.mark.timeout(900)  # the first run fetches the engines and the schemas

each_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
CUSTOM = "monitoring.coreos.com"


@pytest.fixture(scope="module", autouse=True)
def helm_and_schemas() -> None:
    """Return Helm 4 and the schemas of Kubernetes."""
    with needs("Helm"):
        helm.engine()
        kubernetes.schemas()


def rendered(path: Path) -> list[dict]:
    return helm.render(CHART, helm.load_values(path))[0]


@each_example
@pytest.mark.parametrize("release", [kubernetes.OLDEST, kubernetes.NEWEST])
def test_chart_objects_are_valid_by_kubernetes_schemas(path, release):
    known = [item for item in rendered(path) if not item["apiVersion"].startswith(CUSTOM)]
    assert known
    found = {item["kind"]: kubernetes.problems(item, release) for item in known}
    assert found == {kind: [] for kind in found}


def test_chart_examples_render_every_kind_of_object():
    made = {item["kind"] for path in EXAMPLES for item in rendered(path)}
    written = {
        kind
        for template in (CHART / "templates").glob("*.yaml")
        for kind in re.findall(r"^kind: (\w+)$", template.read_text(), re.MULTILINE)
    }
    assert made == written
    assert len(made) >= 11


@each_example
def test_names_and_labels_are_valid_for_an_api_server(path):
    # rules that schemas lack: DNS-1123 names, label values of at most 63 characters
    for item in rendered(path):
        assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", item["metadata"]["name"])
        for value in item["metadata"]["labels"].values():
            assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", value)


@each_example
def test_selectors_match_the_labels_of_the_pod(path):
    found = objects(helm.load_values(path))
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    namespace = found["Deployment"]["metadata"]["namespace"]
    places = {"PodDisruptionBudget": "selector", "NetworkPolicy": "podSelector", "PodMonitor": "selector"}
    for kind in places.keys() & found.keys():
        assert found[kind]["spec"][places[kind]]["matchLabels"].items() <= labels
    assert {item["metadata"]["namespace"] for item in found.values()} == {namespace}
    ports = {port["name"] for port in container(found)["ports"]}
    if "NetworkPolicy" in found:
        [rule] = found["NetworkPolicy"]["spec"]["ingress"]
        assert {port["port"] for port in rule["ports"]} <= ports
    if "PodMonitor" in found:
        assert {point["port"] for point in found["PodMonitor"]["spec"]["podMetricsEndpoints"]} <= ports


def test_ingress_forwards_only_the_paths_of_hooks():
    found = objects(example("glideins"))
    [rule] = found["Ingress"]["spec"]["rules"]
    assert [path["path"] for path in rule["http"]["paths"]] == ["/v1/sites"]
    for path in rule["http"]["paths"]:
        backend = path["backend"]["service"]
        assert backend["name"] == found["Service"]["metadata"]["name"]
        assert backend["port"]["name"] in {port["name"] for port in found["Service"]["spec"]["ports"]}
    assert {"name": "HYDRATOR_PUBLISH__HTTP__BEHIND_PROXY", "value": "true"} in container(found)["env"]


def test_ingress_without_a_host_is_refused():
    with pytest.raises(helm.Refused, match=r"ingress\.host is empty"):
        helm.render(CHART, MINIMAL | {"ingress": {"enabled": True}})


def test_network_policy_with_egress_rules_still_allows_dns():
    policy = objects(example("glideins"))["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert {port["port"] for port in policy["egress"][0]["ports"]} == {53}
    assert objects({"networkPolicy": {"enabled": True}})["NetworkPolicy"]["spec"]["policyTypes"] == [
        "Ingress"
    ]


def test_daemon_starts_with_the_files_and_environment_of_the_pod(tmp_path, daemon):
    found = objects(example("glideins"))
    sources = {volume["name"]: volume for volume in pod(found)["volumes"]}
    moved = {}
    for number, mount in enumerate(container(found)["volumeMounts"]):
        moved[mount["mountPath"]] = folder = tmp_path / str(number)
        folder.mkdir()
        if "configMap" in sources[mount["name"]]:
            for name, text in found["ConfigMap"]["data"].items():
                (folder / name).write_text(text)
            folder.chmod(0o500)

    def here(text: str) -> str:
        places = "|".join(re.escape(place) for place in moved)
        return re.sub(rf"(?<![\w/])({places})(?![\w-])", lambda found: str(moved[found[1]]), text)

    config = moved["/etc/classad-hydrator"] / "config.toml"
    config.write_text(here(config.read_text()))
    state = moved["/var/lib/classad-hydrator"]
    (state / "tokens").touch(0o600)
    given = {item["name"]: here(item["value"]) for item in container(found)["env"]}
    assert container(found)["command"] == ["hydrator"]
    daemon.environ = given | {
        "HYDRATOR_PUBLISH__HTTP__PORT": str(daemon.port),
        "HYDRATOR_PUBLISH__HTTP__HOST": "127.0.0.1",
    }
    daemon.words = [here(argument) for argument in container(found)["args"]]
    daemon.start()
    probes = [
        container(found)[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")
    ]
    assert [daemon.get(path).status_code for path in probes] == [200, 200, 200]
    assert daemon.get("/v1/sites/UK/ad").status_code == 401  # it has read tokens_file
    assert 'AvailableDatasets = {"lofar:L1"}' in (state / "ads" / "UK.ad").read_text()


def test_chart_readme_table_is_up_to_date():
    # else: python scripts/chart_readme.py
    readme = (CHART / "README.md").read_text()
    assert script("chart_readme").page(readme, (CHART / "values.yaml").read_text()) == readme


def test_values_schema_has_exactly_the_values_of_the_chart():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = helm.load_values(CHART / "values.yaml")
    assert schema["properties"].keys() - {"global"} == values.keys()
    assert schema["additionalProperties"] is False
