"""Report on the suites: tests that ran, were skipped or measured; fail if a part that must run did not run.

``python -m testbed.what_ran FOLDER SUITE…``; FOLDER/SUITE.xml is pytest's junit report of a suite.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

MUST_RUN = {
    "HTCondor 25.14": "25.14",
    "HTCondor 23.9": "23.9",
    "Rucio": "test_rucio_server",
    "Rucio on PostgreSQL": "test_rucio_postgres",
    "Rucio behind Apache, by a certificate": "test_rucio_login.test_certificate",
    "Toil on the current bindings": "test_toil.test_batch_system_runs",
    "Toil's own batch system": "test_toils_own_batch_system_runs",
    "Rapthor's own reader": "test_rapthor_reader",
    "the booted systemd": "deploy.test_booted.",
    "the packages on a booted Debian 12": "deploy.test_packages.test_the_debs_install",
    "the package on a booted Debian 13": "deploy.test_packages_13.test_a_fresh_debian",
    "the RPMs, installed by rpm": "deploy.test_packages_13.test_the_real_rpm",
    "the container image": "deploy.test_container.test_image_serves",
    "both Helms": "deploy.test_helm_objects.test_helm_3_renders_the_same_objects",
    "a real Prometheus": "deploy.test_prometheus.",
    "a real browser": "deploy.test_page.",
    "the documentation, built": "deploy.test_docs.",
    "estimates in the slot ads of a pool": "test_auto_end_to_end.test_auto_job_waits",
    "links and sites that change": "test_auto_events.test_next_jobs_follow",
}
"""Parts that the suites must have used, and the text that the name of a test with it contains."""


@dataclass(frozen=True)
class Case:
    """One test; *skipped* is the reason, or None if it ran. *properties* is what it recorded, by name."""

    name: str
    skipped: str | None
    properties: Mapping[str, str] = field(default_factory=dict)


def main(folder: Path, suites: list[str]) -> int:
    """Print a summary of *suites*, and what is missing; 1 when anything is."""
    problems = []
    used: list[str] = []
    for suite in suites:
        cases = read(folder / f"{suite}.xml")
        ran = [case.name for case in cases if case.skipped is None]
        print(f"{suite}: {len(ran)} ran, {len(cases) - len(ran)} skipped")
        for case in cases:
            if case.skipped is not None:
                print(f"  skipped {case.name}: {case.skipped}")
            for name, value in case.properties.items():
                print(f"  {case.name}: {name}: {value}")
        if not ran:
            problems.append(f"the suite {suite} ran no test")
        used += [name for name in ran if not name.startswith("tests.unit.")]
    problems += [
        f"no test ran with {what}"
        for what, mark in MUST_RUN.items()
        if not any(mark in name for name in used)
    ]
    for problem in problems:
        print(f"ci: {problem}")
    return 1 if problems else 0


def read(report: Path) -> list[Case]:
    """Return every test of a junit report; none if there is no report."""
    if not report.is_file():
        return []
    cases = []
    for case in ET.parse(report).iter("testcase"):
        skip = case.find("skipped")
        name = f"{case.get('classname')}.{case.get('name')}"
        reason = None if skip is None else skip.get("message", "no reason given")
        properties = {found.attrib["name"]: found.attrib["value"] for found in case.iter("property")}
        cases.append(Case(name, reason, properties))
    return cases


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
