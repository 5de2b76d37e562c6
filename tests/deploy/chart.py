"""The chart for tests: its examples, and the objects that it renders."""

from pathlib import Path

from testbed import helm

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "classad-hydrator"
EXAMPLES = sorted((CHART / "ci").glob("*-values.yaml"))
MINIMAL = {"config": '[[catalogue]]\ntype = "file"\npath = "c.toml"\n'}


def example(name: str) -> dict:
    return helm.load_values(CHART / "ci" / f"{name}-values.yaml")


def objects(values: dict, **more) -> dict[str, dict]:
    """Return the rendered objects by kind: one of each, without the dashboard's ConfigMap."""
    rendered, _ = helm.render(CHART, MINIMAL | values, **more)
    found = {
        "Dashboard" if item["metadata"]["name"].endswith("-dashboard") else item["kind"]: item
        for item in rendered
    }
    assert len(found) == len(rendered)
    return found


def pod(found: dict[str, dict]) -> dict:
    return found["Deployment"]["spec"]["template"]["spec"]


def container(found: dict[str, dict]) -> dict:
    [daemon] = [one for one in pod(found)["containers"] if one["name"] == "hydrator"]
    return daemon
