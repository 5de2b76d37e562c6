"""The chart in the real Helm engine, and its objects by the schemas of Kubernetes; without a cluster."""

import json
import re
import textwrap
import tomllib
from pathlib import Path

import pytest

from hydrator.config import load
from hydrator.wiring.catalogues import needed_memory
from testbed import helm, kubernetes
from tests.deploy.chart import CHART, EXAMPLES, MINIMAL, ROOT, container, example, objects, pod
from tests.pages import script
from tests.parts import needs

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

pytestmark = pytest.mark.timeout(900)  # the first run fetches the engine and the schemas

each_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


@pytest.fixture(scope="module", autouse=True)
def helm_and_schemas() -> None:
    with needs("Helm"):
        helm.engine()
        kubernetes.schemas()


def rendered(path: Path) -> list[dict]:
    return helm.render(CHART, helm.load_values(path))[0]


def test_chart_renders_five_objects_by_default():
    assert sorted(objects({})) == [
        "ConfigMap", "Deployment", "PersistentVolumeClaim", "Service", "ServiceAccount",
    ]  # fmt: skip


@each_example
def test_helm_lint_accepts_each_example(path):
    report = helm.lint(CHART, helm.load_values(path))
    assert [finding for finding in report["messages"] if finding["severity"] > 1] == []
    assert report["errors"] in ([], None)
    assert report["total_charts_linted"] == 1


def test_chart_without_a_configuration_is_refused_with_one_sentence():
    with pytest.raises(helm.Refused, match=r"config is empty: give the text of config\.toml"):
        helm.render(CHART, {})


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"image": {"repository": ""}}, "image/repository"),
        ({"service": {"port": "eighty"}}, "service/port"),
        ({"files": {"config.toml": ""}}, r"config\.toml"),
        ({"ingress": {"host": "https://hydrator.example.org"}}, "ingress/host"),
        ({"ingress": {"enabled": True}}, r"ingress\.host is empty"),
        ({"livenessProbe": {"path": "/"}}, "livenessProbe"),
        ({"resources": {"limits": {"memory": "2000000000"}}}, "resources/limits/memory"),
    ],
)
def test_invalid_chart_value_is_refused_with_its_key(values, key):
    with pytest.raises(helm.Refused, match=key):
        helm.render(CHART, MINIMAL | values)


POOL = '[htcondor]\ncollector = "cm:9618"\n'
RUCIO = """
[[catalogue]]
type = "rucio"
url = "https://rucio.example.org"
account = "hydrator"
username = "hydrator"
password_file = "password"
"""
STAGING = '[staging]\nmode = "{}"\n[staging.sites.CAM]\n[staging.catalogues.rucio]\n'


@pytest.mark.parametrize(
    "config",
    [
        POOL + MINIMAL["config"],
        POOL + RUCIO + MINIMAL["config"],
        POOL + RUCIO + '[[catalogue]]\ntype = "directory"\nmemory_mb = 900\nscope = "a"\nroots = {CAM = "/"}',
        POOL + RUCIO + STAGING.format("request") + 'activity = "A"',
        POOL + RUCIO + STAGING.format("propose") + 'activity = "A"\ncommand = ["a"]',
        POOL + RUCIO + STAGING.format("off"),
        POOL + RUCIO + "[demand]\nask_schedds = false",
        "[publish]\nslot_merge = true\n" + POOL + RUCIO,
        '[htcondor]\ncollector = "a,b,c"\n' + RUCIO,
    ],
)
def test_chart_refuses_a_memory_limit_below_what_check_adds_up(config, tmp_path):
    (tmp_path / "config.toml").write_text(config)
    collectors = config.count('"a,b,c"') * 3
    needed = needed_memory(load(tmp_path / "config.toml"), collectors) // 1_000_000
    with pytest.raises(helm.Refused, match=rf"resources\.limits\.memory is 1Gi.* may use {needed} MB"):
        helm.render(CHART, {"config": config, "resources": {"limits": {"memory": "1Gi"}}})
    helm.render(CHART, {"config": config, "resources": {"limits": {"memory": f"{needed}Mi"}}})


def test_chart_versions_equal_the_project_version():
    chart = (CHART / "Chart.yaml").read_text()
    assert re.findall(r'^appVersion: "(.*)"$', chart, re.MULTILINE) == [VERSION]
    assert container(objects({}))["image"] == f"classad-hydrator:{VERSION}"


def test_image_digest_has_priority_over_a_tag():
    digest = "sha256:" + 64 * "a"
    assert (
        container(objects({"image": {"digest": digest, "tag": "x"}}))["image"] == f"classad-hydrator@{digest}"
    )


def test_chart_never_runs_two_daemons_on_one_state():
    deployment = objects({})["Deployment"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})


@each_example
def test_pod_meets_the_restricted_security_standard(path):
    # the Pod Security Standard "restricted", and more
    found = objects(helm.load_values(path))
    spec, only = pod(found), container(found)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] >= 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    for one in [only, *spec.get("initContainers", []), *spec["containers"]]:
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert {next(iter(volume.keys() - {"name"})) for volume in spec["volumes"]} <= {
        "configMap", "secret", "emptyDir", "persistentVolumeClaim",
    }  # fmt: skip


@each_example
def test_chart_objects_refer_only_to_existing_names(path):
    found = objects(helm.load_values(path), name="other")
    spec, only = pod(found), container(found)
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert found["Service"]["spec"]["selector"].items() <= labels.items()
    ports = {port["name"] for port in only["ports"]}
    selectors = {"PodDisruptionBudget": "selector", "NetworkPolicy": "podSelector", "PodMonitor": "selector"}
    for kind in selectors.keys() & found.keys():
        assert found[kind]["spec"][selectors[kind]]["matchLabels"].items() <= labels.items()
    namespace = found["Deployment"]["metadata"]["namespace"]
    assert {item["metadata"]["namespace"] for item in found.values()} == {namespace}
    if "NetworkPolicy" in found:
        [rule] = found["NetworkPolicy"]["spec"]["ingress"]
        assert {port["port"] for port in rule["ports"]} <= ports
    if "PodMonitor" in found:
        assert {point["port"] for point in found["PodMonitor"]["spec"]["podMetricsEndpoints"]} <= ports
    assert {port["targetPort"] for port in found["Service"]["spec"]["ports"]} <= ports
    probes = [only[f"{name}Probe"]["httpGet"]["port"] for name in ("startup", "liveness", "readiness")]
    assert set(probes) <= ports
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert {mount["name"] for mount in only["volumeMounts"]} == volumes.keys()
    assert len({mount["mountPath"] for mount in only["volumeMounts"]}) == len(only["volumeMounts"])
    assert volumes["config"]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    if "PersistentVolumeClaim" in found:
        claim = volumes["state"]["persistentVolumeClaim"]["claimName"]
        assert claim == found["PersistentVolumeClaim"]["metadata"]["name"]
    if "ServiceAccount" in found:
        assert spec["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]


def test_changed_configuration_restarts_the_pod():
    def stamp(config: str) -> str:
        template = objects({"config": config})["Deployment"]["spec"]["template"]
        return template["metadata"]["annotations"]["checksum/config"]

    assert stamp(MINIMAL["config"]) == stamp(MINIMAL["config"])
    assert stamp(MINIMAL["config"]) != stamp(MINIMAL["config"] + "# another\n")


def test_chart_readme_values_render():
    [values] = re.findall(
        r"^   ```yaml values\n(.*?)^   ```$", (CHART / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    found, notes = helm.render(CHART, helm.parse(textwrap.dedent(values)))
    [deployment] = [one for one in found if one["kind"] == "Deployment"]
    [daemon] = deployment["spec"]["template"]["spec"]["containers"]
    assert daemon["image"] == "registry.example.org/classad-hydrator:0.1.0"
    assert "No condorToken" not in notes


def test_chart_has_the_alerts_of_deploy_prometheus():
    alerts = ROOT / "deploy" / "prometheus" / "alerts.yml"
    rule = objects({"prometheusRule": {"enabled": True, "labels": {"release": "p"}}})["PrometheusRule"]
    assert rule["spec"] == helm.load_values(alerts)
    assert rule["metadata"]["labels"]["release"] == "p"


def test_monitors_scrape_the_service_under_the_job_name_of_the_alerts():
    found = objects({"nameOverride": "data", "serviceMonitor": {"enabled": True}})
    monitor, service = found["ServiceMonitor"]["spec"], found["Service"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    [endpoint] = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["path"] == "/metrics"
    [job] = [item["replacement"] for item in endpoint["relabelings"] if item["targetLabel"] == "job"]
    assert f'job="{job}"' in (CHART / "files" / "alerts.yml").read_text()


CUSTOM = "monitoring.coreos.com"


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


def test_ingress_forwards_only_the_paths_of_hooks():
    found = objects(example("glideins"))
    [rule] = found["Ingress"]["spec"]["rules"]
    assert [path["path"] for path in rule["http"]["paths"]] == ["/v1/sites"]
    for path in rule["http"]["paths"]:
        backend = path["backend"]["service"]
        assert backend["name"] == found["Service"]["metadata"]["name"]
        assert backend["port"]["name"] in {port["name"] for port in found["Service"]["spec"]["ports"]}
    assert {"name": "HYDRATOR_PUBLISH__HTTP__BEHIND_PROXY", "value": "true"} in container(found)["env"]


def test_network_policy_with_egress_rules_still_allows_dns():
    policy = objects(example("glideins"))["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert {port["port"] for port in policy["egress"][0]["ports"]} == {53}
    assert objects({"networkPolicy": {"enabled": True}})["NetworkPolicy"]["spec"]["policyTypes"] == [
        "Ingress"
    ]


def test_chart_readme_table_is_up_to_date():
    # else: python scripts/chart_readme.py
    readme = (CHART / "README.md").read_text()
    assert script("chart_readme").page(readme, (CHART / "values.yaml").read_text()) == readme


def test_values_schema_has_exactly_the_values_of_the_chart():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = helm.load_values(CHART / "values.yaml")
    assert schema["properties"].keys() - {"global"} == values.keys()
    assert schema["additionalProperties"] is False
