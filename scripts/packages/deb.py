"""Debian packages: control files and maintainer scripts, packed by ``dpkg-deb``."""

import hashlib
import os
import subprocess
from pathlib import Path

from .targets import DAEMON, HOOK, HOOK_PYTHON, RECONFIG, Package, Target
from .tree import FOLDERS, configuration_files, set_modes_and_times

_MAINTAINER = "classad-hydrator <root@localhost>"
_COMPILE = "/opt/classad-hydrator/bin/python3 -m compileall -q -j 0 /opt/classad-hydrator/lib || true"
_DAEMON_SCRIPTS = {
    "postinst": f"""\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    systemd-sysusers classad-hydrator.conf
    {FOLDERS}
    {_COMPILE}
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        # an upgrade: the new program takes over with the same state
        systemctl try-restart hydrator.service || true
    fi
fi
""",
    "prerm": """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now hydrator.service || true
fi
find /opt/classad-hydrator -depth -name __pycache__ -exec rm -rf {} +
""",
    "postrm": """\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ "$1" = purge ]; then
    rm -rf /var/lib/classad-hydrator /var/lib/private/classad-hydrator
    rm -rf /etc/classad-hydrator /opt/classad-hydrator
    if getent passwd hydrator >/dev/null && [ -x /usr/sbin/userdel ]; then
        userdel hydrator || true
    fi
fi
""",
}
_CONDOR_SCRIPT = f"#!/bin/sh\nset -e\n{RECONFIG}"


def build_deb(package: Package, target: Target, root: Path, version: str, seconds: int, folder: Path) -> Path:
    """Pack the tree *root* into a package in *folder*; *seconds* (Unix s) is the time of all files."""
    architecture = "amd64" if package.has_machine_code else "all"
    full_version = f"{version}+{target.tag}" if package.has_machine_code else version
    control = root / "DEBIAN"
    _write_control(control, package, target, root, full_version, architecture)
    set_modes_and_times(root, seconds)
    result = folder / f"{package.name}_{full_version}_{architecture}.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zzstd", "--build", str(root), str(result)],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return result


def _write_control(
    control: Path, package: Package, target: Target, root: Path, version: str, architecture: str
) -> None:
    installed = sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir()) // 1024
    sums = {
        path.relative_to(root): hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
    files = configuration_files(root)
    control.mkdir()
    (control / "control").write_text(
        f"Package: {package.name}\nVersion: {version}\nArchitecture: {architecture}\n"
        f"Maintainer: {_MAINTAINER}\nInstalled-Size: {installed}\nSection: science\nPriority: optional\n"
        f"Depends: {', '.join(_dependencies(package, target))}\nDescription: {package.summary}\n"
        + "".join(f" {line}\n" for line in package.description.splitlines())
    )
    (control / "md5sums").write_text("".join(f"{digest}  {path}\n" for path, digest in sums.items()))
    if files:
        (control / "conffiles").write_text("".join(f"{name}\n" for name in files))
    scripts = _DAEMON_SCRIPTS if package is DAEMON else {"postinst": _CONDOR_SCRIPT, "postrm": _CONDOR_SCRIPT}
    for name, text in scripts.items():
        (control / name).write_text(text)
        (control / name).chmod(0o755)
    control.chmod(0o755)


def _dependencies(package: Package, target: Target) -> list[str]:
    if package is DAEMON:
        return [target.requirement, "systemd (>= 250)", "util-linux", "ca-certificates"]
    return [f"python3 (>= {HOOK_PYTHON})"] if package is HOOK else ["dpkg"]
