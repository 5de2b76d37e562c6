"""File trees of the packages: what each package installs below ``/``."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from typer._completion_shared import get_completion_script

from hydrator.config import Settings
from hydrator.submit.pool_config import negotiator_config, schedd_config
from testbed.wheelhouse import ROOT, dependencies, our_wheel

from .targets import CONFIG_FOLDER, DAEMON, HOOK, POOL, SUBMIT, Package, Target

PREFIX = Path("opt/classad-hydrator")
SHARED = "usr/share"
FOLDERS = "install -d -m 0755 /etc/classad-hydrator && install -d -m 0700 /etc/classad-hydrator/tokens.d"
"""Makes the folders of the configuration and of the pool's token, which root copies there.

systemd-tmpfiles would fail in a chroot without /proc, in which image builders install packages.
"""
_INCLUDE = """\
# The settings of the package {package}; no settings once the package is removed.
# Set your own values below the next line, or in a file that HTCondor reads later. Upgrades keep your changes.
include ifexist : {path}
"""
_START = """\
#!/opt/classad-hydrator/bin/python3
import sys

from hydrator.cli import main

sys.exit(main())
"""
_ZSH_FOLDERS: Mapping[str, str] = {"deb": "vendor-completions", "rpm": "site-functions"}
_COMPLETIONS: Mapping[str, str] = {
    "bash": "usr/share/bash-completion/completions/hydrator",
    "zsh": "usr/share/zsh/{zsh}/_hydrator",
    "fish": "usr/share/fish/vendor_completions.d/hydrator.fish",
}


def build_tree(package: Package, target: Target, root: Path) -> None:
    """Write the files of *package* for *target* below *root*."""
    if package is DAEMON:
        _add_daemon(root, target)
    elif package is HOOK:
        _add(root / "usr/libexec/classad-hydrator-hook", _read("hydrator/startd_cron.py"), 0o755)
        startd_text = _read_own("60-datalocality-startd.conf")
        _add_condor_configuration(root, package, "60-datalocality-startd.conf", startd_text)
    elif package is SUBMIT:
        schedd_text = schedd_config(Settings())
        _add_condor_configuration(root, package, "60-datalocality-schedd.conf", schedd_text)
    elif package is POOL:
        _add_condor_configuration(root, package, "60-datalocality-negotiator.conf", negotiator_config())
    license_file = root / "usr/share/doc" / package.name / "copyright"
    _add(license_file, _read("LICENSE"))


def configuration_files(root: Path) -> list[str]:
    """Return the absolute paths of the files of the tree *root* that an operator may edit, sorted."""
    return sorted(f"/{path.relative_to(root)}" for path in (root / "etc").rglob("*") if path.is_file())


def set_modes_and_times(root: Path, seconds: int) -> None:
    """Set the modes below *root* without the umask of the builder, and the time of all to *seconds* (Unix s).

    Folders and programs get 0755, other files 0644: pip, for example, writes modules with the umask, and the
    service's user could not read them.
    """
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files, "."):
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            os.utime(path, (seconds, seconds), follow_symlinks=False)


def _add_daemon(root: Path, target: Target) -> None:
    prefix = root / PREFIX
    site = prefix / "lib" / f"python{target.python}" / "site-packages"
    _install_wheels(site, target)
    if (site / "share").exists():
        shutil.move(site / "share", prefix / "share")
    shutil.rmtree(site / "bin", ignore_errors=True)
    _add(prefix / "bin/hydrator", _START, 0o755)
    (prefix / "bin/python3").symlink_to(target.interpreter)
    _add(prefix / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
    _add(root / "usr/bin/hydrator", _read("deploy/systemd/hydrator"), 0o755)
    units = root / "usr/lib/systemd/system"
    _add(units / "hydrator.service", _read("deploy/systemd/hydrator.service"))
    _add(units / "hydrator.service.d/10-secrets.conf", _read_secrets_dropin())
    _add(units / "hydrator.service.d/20-user.conf", "[Service]\nUser=hydrator\nGroup=hydrator\n")
    _add(root / "usr/lib/sysusers.d/classad-hydrator.conf", _read_own("sysusers.conf"))
    for shell, place in _COMPLETIONS.items():
        script = get_completion_script(prog_name="hydrator", complete_var="_HYDRATOR_COMPLETE", shell=shell)
        _add(root / place.format(zsh=_ZSH_FOLDERS[target.kind]), f"{script}\n")


def _add_condor_configuration(root: Path, package: Package, name: str, text: str) -> None:
    """Add *text* in the folder of the package, and a file *name* that includes it in HTCondor's folder.

    Only the second file is the operator's to edit. Debian keeps it when the package is removed, and then it
    must have no effect.
    """
    _add(root / SHARED / package.name / name, text)
    include = _INCLUDE.format(package=package.name, path=f"/{SHARED}/{package.name}/{name}")
    _add(root / CONFIG_FOLDER / name, include)


def _install_wheels(site: Path, target: Target) -> None:
    """Install this project's wheel and the wheels of the lock for the Python of *target* into *site*."""
    wheels = dependencies(target.python)
    with tempfile.TemporaryDirectory() as scratch:
        ours = our_wheel(Path(scratch))
        options = [
            "--no-deps",
            "--no-index",
            "--only-binary=:all:",
            "--no-compile",
            "--find-links",
            str(wheels),
        ]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options,
             "--no-warn-script-location", "--python-version", target.python, "--target", str(site),
             "--requirement", str(wheels / "runtime.lock"), "--require-hashes"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options,
             "--python-version", target.python, "--upgrade", "--target", str(site), str(ours)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    for name in ("RECORD", "REQUESTED", "direct_url.json"):  # these have paths of the building machine
        for path in site.glob(f"*.dist-info/{name}"):
            path.unlink()


def _read_secrets_dropin() -> str:
    return _read("deploy/systemd/hydrator.service.d/10-secrets.conf")


def _read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def _read_own(name: str) -> str:
    return _read(f"deploy/packages/{name}")


def _add(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
