"""The expressions of the dashboard, as Grafana would query them."""

import json
from pathlib import Path

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "classad-hydrator.json"
_VARIABLES = {"$site": ".*", "$instance": ".*", "$__rate_interval": "1m", "$__range": "5m"}


def panels() -> dict[str, str]:
    """Return each expression by its panel's title and its letter there."""
    found = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"]
            for name, value in _VARIABLES.items():
                text = text.replace(name, value)
            assert "$" not in text
            found[f"{panel['title']} {target['refId']}"] = text
    return found
