"""A stand-in for a GlideinWMS frontend: it reads a group, tries it at reconfiguration, counts matches.

It is not GlideinWMS and has none of its code: these rules were read in its sources (3.10.17 and later) and
noted down. It has those rules that concern a policy:

- A reconfiguration calls match_expr and match() once with dummy values ("a", 1, True, 1.0). Any exception,
  or an attribute of another type than string, int, bool or real, rejects it.
- Each cycle loads the policy again from its file, because it is a new process.
- Jobs of one schedd are grouped by the values of their match attributes: one call for a group and an
  entry. A value that cannot be hashed (a list) ends the cycle of the frontend's group.
- match_expr is evaluated with ``job``, ``glidein`` and ``attr_dict``. The policy is called only when it
  was true, and only an answer equal to True counts. Exceptions are swallowed and count as no match.
- Jobs that match n entries are requested 1/n at each.
- frontend.xml is read as a whole before anything else: one element or parameter that the frontend does not
  know ends the reconfiguration. Attributes have no ``const`` (the factory's have), the files of a group no
  ``after_group``, and a list such as ``<files>`` no parameters at all (creation/lib/cWParams.py and
  cvWParams.py of the master branch, read in November 2026).

The job query is a ClassAd constraint: the schedd evaluates it, in this module ``selects``.
"""

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

DUMMIES: Mapping[str, Any] = {"string": "a", "int": 1, "bool": True, "real": 1.0}
"""Values with which a reconfiguration tries a policy, by the types that match attributes may have."""

Ad = Mapping[str, Any]


_ATTR = {"name", "value", "parameter", "glidein_publish", "job_publish", "type", "comment"}
_FILE = {
    *("absfname", "relfname", "const", "executable", "wrapper", "untar", "period", "prefix", "type"),
    *("after_entry", "comment"),
}
_UNTAR = {"cond_attr", "dir", "absdir_outattr", "comment"}
PARAMETERS: Mapping[str, set[str]] = {
    "frontend/attrs/attr": _ATTR,
    "frontend/files/file": _FILE | {"after_group"},
    "frontend/files/file/untar_options": _UNTAR,
    "frontend/groups/group": {"name", "enabled", "comment"},
    "frontend/groups/group/attrs/attr": _ATTR,
    "frontend/groups/group/files/file": _FILE,
    "frontend/groups/group/files/file/untar_options": _UNTAR,
    "frontend/groups/group/match": {"match_expr", "start_expr", "policy_file", "comment"},
    "frontend/groups/group/match/factory": {"query_expr", "comment"},
    "frontend/groups/group/match/factory/match_attrs/match_attr": {"name", "type", "comment"},
    "frontend/groups/group/match/factory/collectors/collector": {
        *("node", "DN", "factory_identity", "my_identity", "comment"),
    },
    "frontend/groups/group/match/job": {"query_expr", "comment"},
    "frontend/groups/group/match/job/match_attrs/match_attr": {"name", "type", "comment"},
    "frontend/groups/group/match/job/schedds/schedd": {"fullname", "DN", "comment"},
}
"""The parameters that the frontend knows of each element, as far as our fragments go."""
_LISTS = {"attrs", "files", "groups", "match_attrs", "collectors", "schedds"}
_ATTR_TYPES = ("string", "int", "expr")


class Refused(Exception):
    """A configuration that a reconfiguration rejects."""


@dataclass(frozen=True)
class Group:
    """One group of frontend.xml, as far as it selects entries for jobs."""

    name: str
    match_expr: str
    start_expr: str
    policy_file: str
    job_query: str
    factory_attrs: Mapping[str, str]
    job_attrs: Mapping[str, str]


def parse_frontend(text: str) -> ET.Element:
    """Read *text*, frontend.xml or a fragment of it whose root is ``frontend``, ``groups`` or ``group``.

    Raises:
        Refused: the frontend does not know an element, a parameter or its value.
    """
    root = ET.fromstring(text)
    above = {"frontend": "", "groups": "frontend/", "group": "frontend/groups/"}
    if root.tag not in above:
        raise Refused(f"Unknown parameter {root.tag}")
    _check_parameter(root, above[root.tag] + root.tag)
    return root


def _check_parameter(element: ET.Element, path: str) -> None:
    known = PARAMETERS.get(path, set())
    if path != "frontend" and path not in PARAMETERS and element.tag not in _LISTS:
        raise Refused(f"Unknown parameter {path}")
    if unknown := sorted(set(element.attrib) - known):
        raise Refused(f"Unknown parameter {path}.{unknown[0]}")
    if element.tag == "attr" and element.attrib.get("type", "string") not in _ATTR_TYPES:
        raise Refused(f"{path}: wrong attribute type {element.attrib['type']}")
    for child in element:
        _check_parameter(child, f"{path}/{child.tag}")


def groups_of(file: Path, policies: Path) -> dict[str, Group]:
    """Return the groups in *file*, with the policies of *policies* instead of a frontend's own."""
    found = {}
    for element in parse_frontend(file.read_text()).iter("group"):
        match = _child(element, "match")
        factory, job = _child(match, "factory"), _child(match, "job")
        policy = match.attrib["policy_file"]
        found[element.attrib["name"]] = Group(
            element.attrib["name"],
            match.attrib["match_expr"],
            match.attrib["start_expr"],
            str(policies / Path(policy).name) if policy else "",
            job.attrib["query_expr"],
            _types(factory),
            _types(job),
        )
    return found


def _child(element: ET.Element, name: str) -> ET.Element:
    found = element.find(name)
    if found is None:
        raise Refused(f"<{element.tag}> has no <{name}>")
    return found


def _types(element: ET.Element) -> dict[str, str]:
    return {one.attrib["name"]: one.attrib["type"] for one in element.iter("match_attr")}


def load_policy(group: Group) -> ModuleType | None:
    """Return the group's policy, as a module of the name of its file."""
    if not group.policy_file:
        return None
    path = Path(group.policy_file)
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Refused(f"{path} is no Python file")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Refused(f"{path} cannot be loaded: {error!r}") from error
    return module


def _policy_types(policy: ModuleType | None, name: str) -> dict[str, str]:
    return {key: value["type"] for key, value in getattr(policy, name, {}).items()}


def reconfigure(group: Group) -> None:
    """Try the group with dummy values.

    Raises:
        Refused: as at a reconfiguration.
    """
    policy = load_policy(group)
    job = _dummies({**group.job_attrs, **_policy_types(policy, "job_match_attrs")})
    attrs = _dummies({**group.factory_attrs, **_policy_types(policy, "factory_match_attrs")})
    glidein = {"attrs": attrs, "params": {}, "monitor": {}}
    try:
        eval(group.match_expr, {"job": job, "glidein": glidein, "attr_dict": {}})
        if policy:
            policy.match(job, glidein)
    except Exception as error:
        raise Refused(f"{group.name}: {error!r}") from error


def _dummies(types: Mapping[str, str]) -> dict[str, Any]:
    if unknown := sorted(name for name, kind in types.items() if kind not in DUMMIES):
        raise Refused(f"the types of {', '.join(unknown)} are none of {', '.join(DUMMIES)}")
    return {name: DUMMIES[kind] for name, kind in types.items()}


def selects(constraint: str, job: str) -> bool:
    """Return whether a schedd returns *job* (an ad as text) for *constraint*."""
    import classad2
    import htcondor2  # noqa: F401 - some functions of ClassAds work only with it

    return classad2.ExprTree(constraint).eval(classad2.ClassAd(job)) is True


def count_matches(
    group: Group, policy: ModuleType | None, jobs: Mapping[str, Sequence[Ad]], entries: Mapping[str, Ad]
) -> dict[str, int]:
    """Return by entry the jobs that match it; *jobs* by schedd."""
    names = sorted({**group.job_attrs, **_policy_types(policy, "job_match_attrs")})
    bundles = {schedd: _group_jobs(names, queue) for schedd, queue in jobs.items()}
    match_expr = compile(group.match_expr, group.name, "eval")
    counts = {}
    for entry, attrs in entries.items():
        glidein = {"attrs": attrs, "params": {}, "monitor": {}}
        counts[entry] = sum(
            size
            for bundle in bundles.values()
            for job, size in bundle
            if _matches(match_expr, policy, job, glidein)
        )
    return counts


def _group_jobs(names: Sequence[str], queue: Sequence[Ad]) -> list[tuple[Ad, int]]:
    found: dict[tuple[Any, ...], tuple[Ad, int]] = {}
    for job in queue:
        key = tuple(job.get(name) for name in names)
        first, size = found.get(key, (job, 0))
        found[key] = (first, size + 1)
    return list(found.values())


def _matches(match_expr: Any, policy: ModuleType | None, job: Ad, glidein: Ad) -> bool:  # noqa: ANN401 - code
    try:
        matches = eval(match_expr, {"job": job, "glidein": glidein, "attr_dict": {}})
        if matches is True and policy:
            matches = policy.match(job, glidein)
        return bool(matches == True)  # noqa: E712 - that is its rule
    except Exception:  # noqa: BLE001 - that is its rule
        return False
