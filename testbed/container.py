"""The image, built by Debian's buildah and run by Debian's crun, without a registry.

The base that the Containerfile names is in a registry. A Debian 12 with Python 3.11, made by the test,
stands in for it, under its name.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import debs, machine
from .processes import run_program
from .wheelhouse import ROOT, dependencies, our_wheel

CONTAINERFILE = ROOT / "deploy" / "container" / "Containerfile"
BASE = "docker.io/library/python:3.11-slim-bookworm"
_NAMESPACES = ("pid", "ipc", "uts", "mount")
_BUILD = """
set -eu
libraries=usr/lib/x86_64-linux-gnu
for unwanted in wheels opt var/cache; do mount -t tmpfs none "$TREE/$unwanted"; done  # half of the tree
mount -t overlay overlay -o "lowerdir=$BUILDAH_HOME/$libraries:/$libraries" "/$libraries"
buildah() { "$BUILDAH" --root "$STORE/root" --runroot "$STORE/run" --storage-driver overlay "$@"; }
buildah from --name base scratch
buildah copy --quiet base "$TREE" /
buildah commit --quiet --signature-policy "$STORE/policy.json" --rm base "$BASE"
buildah bud --quiet --isolation chroot --pull-never --signature-policy "$STORE/policy.json" \\
    --tag classad-hydrator --file "$CONTAINERFILE" "$CONTEXT"
buildah from --name daemon --pull-never --signature-policy "$STORE/policy.json" localhost/classad-hydrator
buildah inspect --type image localhost/classad-hydrator > "$STORE/image.json"
cp --archive "$(buildah mount daemon)" "$STORE/rootfs"
buildah umount daemon
"""
_RUN = """
set -eu
umount --lazy /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup  # crun takes no mixture of both hierarchies
exec "$CRUN" --cgroup-manager=disabled --root "$STORE/crun" run --bundle "$STORE/bundle" "$NAME"
"""
_ALONE = ("unshare", "--mount", "--propagation", "private")


def build(store: Path) -> dict[str, Any]:
    """Build the image below *store*; its file system is ``rootfs`` there.

    Returns:
        The image's own configuration: User, Env, Entrypoint, Cmd and so on.

    Raises:
        Unavailable: not root, or the base cannot be made on this machine.
        Unavailable: buildah cannot be downloaded.
        Unavailable: the dependencies cannot be downloaded.
        AssertionError: the build failed; the text ends with buildah's error.
    """
    tree = machine.base()
    program, _ = debs.program("buildah", "buildah", "usr/bin")
    context = store / "context"
    shutil.copytree(dependencies(), context / "dist")
    our_wheel(context / "dist")
    (store / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (store / "registries.conf").write_text("unqualified-search-registries = []\n")
    given = {
        "BUILDAH": program, "BUILDAH_HOME": program.parents[2], "STORE": store, "TREE": tree, "BASE": BASE,
        "CONTAINERFILE": CONTAINERFILE, "CONTEXT": context,
        "CONTAINERS_REGISTRIES_CONF": store / "registries.conf",
    }  # fmt: skip
    done = run_program([*_ALONE, "sh", "-c", _BUILD], env=_environment(given))
    if done.returncode != 0:
        raise AssertionError(f"the image was not built: {(done.stdout + done.stderr)[-2000:]}")
    config: dict[str, Any] = json.loads((store / "image.json").read_text())["OCIv1"]["config"]
    return config


@contextlib.contextmanager
def running(
    store: Path, config: Mapping[str, Any], mounts: Mapping[str, Path], more: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the image as configured: root read-only, no capability, no new privileges, this host's network.

    Args:
        store: the folder of the build.
        config: the result of `build`.
        mounts: folders of this machine by their path in the container, writable.
        more: additional environment.
    """
    program, libraries = debs.program("crun", "crun", "usr/bin")
    bundle = store / "bundle"
    bundle.mkdir()
    (bundle / "config.json").write_text(json.dumps(_specification(store / "rootfs", config, mounts, more)))
    given = {"CRUN": program, "STORE": store, "NAME": f"hydrator-{os.getpid()}", **libraries}
    with (store / "log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *_ALONE, "--pid", "--fork", "--kill-child", "--mount-proc",
             "sh", "-c", _RUN],
            env=_environment(given), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _environment(given: Mapping[str, object]) -> dict[str, str]:
    return dict(os.environ) | {name: str(value) for name, value in given.items()}


def _specification(
    root: Path, config: Mapping[str, Any], mounts: Mapping[str, Path], more: Mapping[str, str]
) -> dict[str, Any]:
    """Return the configuration for crun, after the OCI runtime specification."""
    uid, gid = (int(part) for part in config["User"].split(":"))
    nothing: dict[str, list[str]] = {
        kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
    }
    bound = [
        {
            "destination": place,
            "type": "bind",
            "source": str(folder),
            "options": ["rbind", "rw", "nosuid", "nodev"],
        }
        for place, folder in mounts.items()
    ]
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": uid, "gid": gid},
            "args": [*config["Entrypoint"], *config["Cmd"]],
            "env": [*config["Env"], *(f"{name}={value}" for name, value in more.items())],
            "cwd": "/",
            "capabilities": nothing,
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]},
            *bound,
        ],
        "linux": {"namespaces": [{"type": kind} for kind in _NAMESPACES]},
    }
