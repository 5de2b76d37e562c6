"""The recipe for conda-forge: rendered by rattler-build, and compared with pyproject.toml and its rules.

conda-forge's own linter (conda-smithy) is not on PyPI, so it does not run here. These tests themselves check
those of its rules that this recipe can break. Nothing here builds the package or asks a conda channel.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from testbed.conda import RecipeRejected, render
from tests.parts import NO_CONDA, needs

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "deploy" / "conda" / "recipe.yaml"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CONDA_NAMES = {
    "htcondor": "python-htcondor",
    "prometheus-client": "prometheus_client",
    "typing-extensions": "typing_extensions",
}
"""Names of packages that conda-forge spells differently from PyPI."""
SECTIONS = [
    "schema_version",
    "context",
    "package",
    "source",
    "build",
    "requirements",
    "tests",
    "about",
    "extra",
]
"""The sections in the order of conda-forge's linter."""
SPEC = re.compile(r"__linux|[a-z0-9_-]+( [<>=!0-9.,*]+)?")
"""A requirement: a name in small letters, one space, and a version without spaces."""


@pytest.fixture(scope="module")
def package() -> dict[str, Any]:
    with needs(NO_CONDA):
        [only] = render(RECIPE)
    return only


def test_the_recipe_renders_to_one_package_of_this_version(package):
    assert package["package"] == {"name": PROJECT["name"], "version": PROJECT["version"]}
    assert (package["build"]["noarch"], package["build"]["number"]) == ("python", 0)


def test_the_recipe_has_the_requirements_and_programs_of_the_project(package):
    wanted = set()
    for text in PROJECT["dependencies"]:
        requirement = Requirement(text)
        bounds = sorted(str(requirement.specifier).split(","), key=lambda bound: bound.startswith("<"))
        wanted.add(f"{CONDA_NAMES.get(requirement.name, requirement.name)} {','.join(bounds)}")
    run = set(package["requirements"]["run"])
    assert run - wanted == {f"python {PROJECT['requires-python']}", "__linux"}
    assert wanted <= run
    programs = [f"{name} = {entry}" for name, entry in PROJECT["scripts"].items()]
    assert package["build"]["python"]["entry_points"] == programs


def test_the_recipe_keeps_the_rules_of_conda_forge(package):
    text = RECIPE.read_text("utf-8")
    recipe = yaml.safe_load(text)
    assert list(recipe) == SECTIONS
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    requirements = [*package["requirements"]["host"], *package["requirements"]["run"]]
    assert [spec for spec in requirements if not SPEC.fullmatch(spec)] == []
    assert not {"wheel", "setuptools"} & {spec.split()[0] for spec in requirements}
    assert "python ${{ python_min }}.*" in recipe["requirements"]["host"]
    assert "python >=${{ python_min }}" in recipe["requirements"]["run"]
    assert recipe["tests"][0]["python"]["python_version"] == "${{ python_min }}.*"
    about = package["about"]
    assert about["license"] == PROJECT["license"]
    assert [(ROOT / name).is_file() for name in about["license_file"]] == [True]
    assert about.keys() >= {"homepage", "summary"}
    assert recipe["extra"]["recipe-maintainers"]


def test_rattler_build_rejects_an_unknown_key(tmp_path):
    broken = tmp_path / "recipe.yaml"
    broken.write_text(RECIPE.read_text().replace("\nrequirements:", "\nrequirement:"))
    with needs(NO_CONDA), pytest.raises(RecipeRejected, match="requirement"):
        render(broken)
