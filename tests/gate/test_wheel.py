"""The wheel, built from this checkout, in an environment that has nothing else but its dependencies."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import hydrator
from testbed.wheelhouse import our_wheel

ROOT = Path(__file__).parents[2]
ALL_MODULES = """
import importlib, pathlib, sys, sysconfig
root = pathlib.Path(sysconfig.get_path("purelib"))
files = [file for package in ("hydrator", "adapters") for file in sorted((root / package).rglob("*.py"))]
names = {".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for file in files}
for name in sorted(names):
    module = importlib.import_module(name)
    assert pathlib.Path(module.__file__).is_relative_to(root), module.__file__
print(len(names))
"""
MODULES_OF_VERSION = """
import sys
before = set(sys.modules)
from hydrator.cli import main
sys.argv[1:] = ["--version"]
main()
print(len(set(sys.modules) - before))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """Return the Python of a new environment with the wheel and, last on its path, the dependencies."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--disable-pip-version-check")
    wheel = our_wheel(tmp_path_factory.mktemp("wheel"))
    subprocess.run([*pip, "-qq", "--no-deps", "--no-index", wheel], check=True)
    site = output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(site) / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    return python


def output(*command: object) -> str:
    """Return what *command* prints outside of the checkout, and without a PYTHONPATH, which may name it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, cwd="/", env=environment)
    return done.stdout


def test_installed_command_prints_its_version_and_the_hook(python):
    command = python.with_name("hydrator")
    assert output(command, "--version") == f"{hydrator.__version__}\n"
    assert output(command, "hook") == (ROOT / "hydrator" / "startd_cron.py").read_text("utf-8")


def test_every_module_of_the_wheel_can_be_imported(python):
    modules = [file for package in ("hydrator", "adapters") for file in (ROOT / package).rglob("*.py")]
    assert int(output(python, "-c", ALL_MODULES)) == len(modules)


def test_version_is_printed_without_the_modules_of_the_commands(python):
    """Scripts on worker nodes call it often; with all commands it imports five times as many modules."""
    version, count = output(python, "-c", MODULES_OF_VERSION).split()
    assert version == hydrator.__version__
    assert int(count) <= 120
