"""RPM packages for Enterprise Linux: a spec file, packed by Debian's ``rpmbuild``."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from testbed.debs import program

from .targets import DAEMON, HOOK, HOOK_PYTHON, RECONFIG, Package, Target
from .tree import FOLDERS, SHARED, configuration_files, set_modes_and_times

_COMPILE = "/opt/classad-hydrator/bin/python3 -m compileall -q -j 0 /opt/classad-hydrator/lib || :"
_DAEMON_SCRIPTLETS: Mapping[str, str] = {
    "post": f"""\
systemd-sysusers classad-hydrator.conf || :
{FOLDERS} || :
{_COMPILE}
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # an upgrade: the new program takes over with the same state
    [ "$1" -ge 2 ] && systemctl try-restart hydrator.service || :
fi
""",
    "preun": """\
if [ "$1" -eq 0 ]; then
    [ -d /run/systemd/system ] && systemctl disable --now hydrator.service || :
    find /opt/classad-hydrator -depth -name __pycache__ -exec rm -rf {} +
fi
""",
    "postun": """\
[ -d /run/systemd/system ] && systemctl daemon-reload || :
if [ "$1" -eq 0 ]; then
    rm -rf /opt/classad-hydrator
fi
""",
}


def build_rpm(package: Package, target: Target, root: Path, version: str, seconds: int, folder: Path) -> Path:
    """Pack the tree *root* into a package in *folder*; *seconds* (Unix s) is the time of all files.

    The files of *root* are moved, not copied: there are thousands.

    Raises:
        Unavailable: Debian's package ``rpm`` is not on this machine and cannot be downloaded.
    """
    set_modes_and_times(root, seconds)
    rpmbuild, environment = rpm_program("rpmbuild")
    architecture = "x86_64" if package.has_machine_code else "noarch"
    with tempfile.TemporaryDirectory() as scratch:
        spec = Path(scratch) / f"{package.name}.spec"
        spec.write_text(_format_spec(package, target, root, version))
        options = {
            "_topdir": scratch,
            "_rpmdir": str(folder),
            "_build_name_fmt": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
            "_buildhost": "localhost",
            "use_source_date_epoch_as_buildtime": "1",
            "clamp_mtime_to_source_date_epoch": "1",
            "_binary_payload": "w7.zstdio",
            "__brp_python_bytecompile": "%{nil}",
            "__os_install_post": "%{nil}",
        }
        defines = [word for name, value in options.items() for word in ("--define", f"{name} {value}")]
        subprocess.run(
            [str(rpmbuild), "-bb", "--quiet", "--target", f"{architecture}-linux", *defines,
             "--buildroot", f"{scratch}/buildroot", str(spec)],
            env={**os.environ, **environment, "SOURCE_DATE_EPOCH": str(seconds), "TREE": str(root)},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    return folder / f"{package.name}-{version}-1.{target.tag}.{architecture}.rpm"


def rpm_program(name: str) -> tuple[Path, dict[str, str]]:
    """Return the program *name* of Debian's package ``rpm``, and the environment that it needs.

    Raises:
        Unavailable: the package is not on this machine and cannot be downloaded.
    """
    path, environment = program(name, "rpm", "usr/bin")
    configuration = {"RPM_CONFIGDIR": str(path.parents[1] / "lib/rpm")} if environment else {}
    return path, {**environment, **configuration}


def _format_spec(package: Package, target: Target, root: Path, version: str) -> str:
    edited = configuration_files(root)
    links_and_files = sorted(
        f"/{path.relative_to(root)}" for path in root.rglob("*") if path.is_symlink() or path.is_file()
    )
    listed = [f'%config(noreplace) "{name}"' if name in edited else f'"{name}"' for name in links_and_files]
    own_folders = (
        f"usr/share/doc/{package.name}",
        f"{SHARED}/{package.name}",
        "usr/lib/systemd/system/hydrator.service.d",
    )
    listed += [f'%dir "/{name}"' for name in own_folders if (root / name).is_dir()]
    scriptlets = _DAEMON_SCRIPTLETS if package is DAEMON else {"post": RECONFIG, "postun": RECONFIG}
    requires = "".join(f"Requires: {name}\n" for name in _requirements(package, target))
    parts = [
        f"Name: {package.name}\nVersion: {version}\nRelease: 1.{target.tag}\nSummary: {package.summary}\n"
        f"License: Apache-2.0\nAutoReqProv: no\n{requires}"
        + ("" if package.has_machine_code else "BuildArch: noarch\n"),
        f"%description\n{package.description}\n",
        '%install\nmkdir -p "%{buildroot}"\nmv "$TREE"/* "%{buildroot}/"\n',
        *(f"%{name}\n{text}" for name, text in scriptlets.items()),
        "%files\n%defattr(-,root,root,-)\n" + "".join(f"{line}\n" for line in listed),
    ]
    return "\n".join(parts)


def _requirements(package: Package, target: Target) -> list[str]:
    if package is DAEMON:
        return [target.requirement, "systemd >= 250", "util-linux", "ca-certificates", "/bin/sh"]
    return [f"python3 >= {HOOK_PYTHON}"] if package is HOOK else []
