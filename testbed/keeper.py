"""Keeper: the process that keeps one pool alive, and removes it when its owner has ended.

`testbed.pool` runs it as a program with the path of a JSON file (`KeeperSpec`) and the read end of a
pipe as standard input. The owner has the only write end, so the end of the file means that the owner
stopped the pool or died, also by kill -9. The daemons run in mount and pid namespaces of their own:
when the keeper kills their process 1, the kernel ends every process and removes every mount, and the
keeper removes the run folder.

Standard library only, and no import of the project: it must outlive any failure of its owner.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn, TypedDict

CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class KeeperSpec(TypedDict):
    """The orders for the keeper; all paths are absolute."""

    run: str  # the run folder, removed at the end
    tree: str  # a private Debian tree
    command: list[str]  # condor_master and its arguments, as seen inside
    environment: dict[str, str]


def main() -> None:
    """Start the daemons, wait until the owner has ended, and leave nothing behind."""
    spec: KeeperSpec = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    ended = os.pipe()
    os.set_blocking(ended[1], False)
    signal.set_wakeup_fd(ended[1])
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    first = 0
    try:
        first = _in_namespaces(spec)
        select.select([sys.stdin, ended[0]], [], [])
    except OSError as failure:
        _say({"error": f"{failure.strerror or failure}"})
    finally:
        if first:
            os.kill(first, signal.SIGKILL)
            os.waitpid(first, 0)
        remove(Path(spec["run"]))


def remove(run: Path) -> None:
    """Remove the run folder, and the folder above it when it was the last one there."""
    shutil.rmtree(run, ignore_errors=True)
    with contextlib.suppress(OSError):  # another pool runs there
        run.parent.rmdir()


def _in_namespaces(spec: KeeperSpec) -> int:
    """Fork process 1 of a new pid namespace; return its pid in the keeper's namespace."""
    _check(LIBC.unshare(CLONE_NEWPID))
    pid = os.fork()
    if pid == 0:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _process_one(spec)
    return pid


def _process_one(spec: KeeperSpec) -> NoReturn:
    """Be process 1: mount the daemons' file system, start them, reap every ended process."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pid = int(Path("/proc/self").readlink().name)  # as the owner sees it: /proc is still the machine's
    try:
        _check(LIBC.unshare(CLONE_NEWNS))
        _mount("--make-rprivate", "/")
        _arrange(Path(spec["run"]), Path(spec["tree"]))
        master = _start(spec)
    except (OSError, subprocess.CalledProcessError) as failure:
        reason = failure.stderr if isinstance(failure, subprocess.CalledProcessError) else failure.strerror
        _say({"error": str(reason or failure).strip()})
        os._exit(1)
    _say({"init": pid, "master": master})
    _silence()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.2)  # the master was stopped; tools may still come in


def _arrange(run: Path, tree: Path) -> None:
    """Put the root folder together: the tree below a layer that is thrown away, and the run folder in it.

    The tree is never written to. The layer is a tmpfs, because overlayfs does not take a
    container's own overlay as its upper folder. /sys is bound without what is mounted below it, so
    that no daemon makes a cgroup that would stay behind; /proc/sys is read-only, because a
    condor_master that is root tunes the machine's kernel when it starts.
    """
    layer, root = run / "layer", run / "root"
    _mount("-t", "tmpfs", "-o", "mode=755", "testbed", str(layer))
    for name in ("upper", "work"):
        (layer / name).mkdir(mode=0o755)
    folders = f"lowerdir={tree},upperdir={layer}/upper,workdir={layer}/work"
    _mount("-t", "overlay", "-o", folders, "testbed", str(root))
    _mount("--rbind", "/dev", str(root / "dev"))
    inside = root / run.relative_to("/")
    inside.mkdir(parents=True)
    for folder in [inside, *inside.parents]:
        if folder != root and root in folder.parents:
            folder.chmod(0o755)
    _mount("--bind", str(run), str(inside))
    _mount("--bind", "/sys", str(root / "sys"))
    _mount("-o", "remount,bind,ro", str(root / "sys"))
    _mount("-t", "proc", "proc", str(root / "proc"))
    _mount("--bind", str(root / "proc" / "sys"), str(root / "proc" / "sys"))
    _mount("-o", "remount,bind,ro", str(root / "proc" / "sys"))
    for name in ("passwd", "group", "hosts"):
        (root / "etc" / name).touch()
        _mount("--bind", str(run / "etc" / name), str(root / "etc" / name))
    os.chroot(root)
    os.chdir("/")


def _start(spec: KeeperSpec) -> int:
    with Path(spec["run"], "log", "start.log").open("ab") as log:
        return subprocess.Popen(
            spec["command"],
            env=spec["environment"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ).pid


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no namespaces for us: {os.strerror(number)}")


def _say(what: dict[str, object]) -> None:
    """Send one line of JSON to the owner, which may have ended."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(what).encode() + b"\n")


def _silence() -> None:
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)


if __name__ == "__main__":
    main()
