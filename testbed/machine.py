"""A machine for the shipped unit: Debian 12 or 13 under its real systemd, as PID 1 of separate namespaces.

It shares this machine's kernel and network (so that it reaches a pool on loopback) and nothing else; its
files go to a folder of the test.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .cached import Unavailable, built
from .debian import ENTER, SUITES, ensure_debootstrap, mirror, tree, version
from .patience import wait_for
from .processes import run_program
from .wheelhouse import dependencies

SUITE = "bookworm"
PREFIX = "/opt/classad-hydrator"
"""Folder of the daemon in docs/operators/service.md."""
WHEELS = "/wheels"
"""Folder of the wheels of the dependencies on the machine: it has no package index."""
_PACKAGES = "systemd,dbus,libnss-systemd,python3,python3-venv,procps,ca-certificates"
_RECIPE = f"1 {SUITE} {_PACKAGES} console-getty masked; venv {PREFIX}"
_LAYER_PACKAGES = "systemd dbus libnss-systemd rpm"
_LAYER = """
set -eu
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/layer,workdir=$2/work" "$2/root"
mount -t proc proc "$2/root/proc"
chroot "$2/root" env DEBIAN_FRONTEND=noninteractive sh -euc '
    install="apt-get install --yes --no-install-recommends $0"
    $install || { apt-get update; $install; }
    apt-get clean
    ln -s /dev/null /etc/systemd/system/console-getty.service
    ln -sf /dev/null /etc/systemd/system/condor.service' "$3"
"""
_BOOT = """
set -eu
root=$1 base=$2 upper=$3 work=$4
mount -t overlay overlay -o "lowerdir=$base,upperdir=$upper,workdir=$work" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs sysfs sys
umount -l sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs dev -o mode=755
for name in null zero full random urandom tty; do
    touch "dev/$name"
    mount --bind "/dev/$name" "dev/$name"
done
touch dev/console
mkdir -p dev/pts dev/shm old
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666
ln -sf pts/ptmx dev/ptmx
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs tmpfs run -o mode=755
mount -t tmpfs tmpfs tmp
pivot_root . old
umount -l /old
mount --make-rshared /  # or credentials are handed over to nobody
exec env -i container=testbed PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    /lib/systemd/systemd --system --log-target=journal --unit=multi-user.target
"""


def base() -> Path:
    """Return the folder with Debian 12, its systemd, and an environment with all dependencies (a minute).

    Raises:
        Unavailable: see there.
        Unavailable: the dependencies cannot be downloaded.
    """
    if os.geteuid() != 0:
        raise Unavailable("only root can boot a systemd")
    wheels = dependencies()
    recipe = f"{_RECIPE} {(wheels / 'runtime.lock').read_text()}".encode()
    return built(f"debian-{SUITE}", recipe, lambda home: _build(home, wheels))


def layers() -> str:
    """Return the folders of a Debian 13 with systemd and rpm, as an overlay's lower ones.

    They are the tree of the pools, which has HTCondor, and a small layer (half a minute).

    Raises:
        Unavailable: Debian's tree cannot be built.
        Unavailable: the packages cannot be installed.
    """
    lower = tree(SUITES["23.9"], print)
    recipe = f"{_LAYER} {_LAYER_PACKAGES} {version(lower)} {lower.stat().st_ino}".encode()
    layer = built("debian-13-layer", recipe, lambda home: _build_layer(lower, home)) / "layer"
    return f"{layer}:{lower}"


def _build_layer(lower: Path, home: Path) -> None:
    for name in ("layer", "work", "root"):
        (home / name).mkdir(parents=True)
    (home / "layer").chmod(0o755)
    _step([*ENTER, "sh", "-c", _LAYER, "sh", str(lower), str(home), _LAYER_PACKAGES])
    shutil.rmtree(home / "work")


def _build(home: Path, wheels: Path) -> None:
    ensure_debootstrap(print)
    source = mirror()
    bootstrap = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", SUITE, str(home)]
    _step([*ENTER, *bootstrap, *([source] if source else [])])
    shutil.copytree(wheels, home / WHEELS[1:])
    (home / "etc/systemd/system/console-getty.service").symlink_to("/dev/null")  # there is no console
    _step(["chroot", str(home), "python3", "-m", "venv", PREFIX])
    lock = f"{WHEELS}/runtime.lock"
    pip = [f"{PREFIX}/bin/pip", "install", "--quiet", "--no-index", "--find-links", WHEELS, "--no-deps"]
    _step(["chroot", str(home), *pip, "--require-hashes", "-r", lock])


def _step(command: list[str]) -> None:
    done = run_program(command, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Unavailable(f"{command[-1]}: {(done.stderr or done.stdout).strip()[-400:]}")


@dataclass(frozen=True)
class Machine:
    """A machine that is up: *root* has the files that it wrote, *pid* is its PID 1 on this machine."""

    root: Path
    pid: int

    def run(self, *command: str, check: bool = True) -> str:
        """Return the output of *command* on the machine, without the last newline.

        Raises:
            AssertionError: it failed, and *check* is set.
        """
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--uts", "--ipc", "--cgroup"]
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        done = run_program([*enter, "env", "-i", path, *command], timeout=300, stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.rstrip("\n")

    def show(self, unit: str, name: str) -> str:
        """Return one property of *unit*, by systemctl."""
        return self.run("systemctl", "show", "--property", name, "--value", unit)


@contextlib.contextmanager
def boot(folder: Path, furnish: Path, lower: str | None = None) -> Iterator[Machine]:
    """Boot a machine whose files go to *folder*, with the files of *furnish* on top of its root.

    *lower* has the folders with the system, as an overlay's lower ones; by default it is a Debian 12.

    Raises:
        Unavailable: it did not start; the text ends with systemd's output.
    """
    parts = {name: folder / name for name in ("root", "upper", "work")}
    for part in parts.values():
        part.mkdir()
    shutil.copytree(furnish, parts["upper"], symlinks=True, dirs_exist_ok=True)
    parts["upper"].chmod(0o755)  # it is the machine's root: its services pass through it
    console_file = folder / "console"
    arguments = [str(each) for each in (parts["root"], lower or base(), parts["upper"], parts["work"])]
    namespaces = ["--mount", "--pid", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child"]
    with _cgroup(f"hydrator-boot-{os.getpid()}") as cgroup, console_file.open("wb") as console:
        # into a cgroup of its own first: the machine sees no other
        entered = f'echo $$ > "{cgroup}/cgroup.procs" && exec "$@"'
        command = ["unshare", *namespaces, "--propagation", "private", "sh", "-c", _BOOT, "boot", *arguments]
        outer = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "sh", "-c", entered, "sh", *command],
            stdout=console, stderr=console, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            pid = wait_for(lambda: _up(outer, console_file), "systemd to be up")
            assert pid is not None
            yield Machine(parts["upper"], pid)
        finally:
            outer.kill()
            outer.wait()


def _up(outer: subprocess.Popen[bytes], console: Path) -> int | None:
    """Return PID 1 of the machine, once it has reached its target."""
    if outer.poll() is not None:
        raise Unavailable(f"systemd did not start: {console.read_text('utf-8', 'replace')[-800:]}")
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
    if not children or b"systemd" not in Path(f"/proc/{children[0]}/cmdline").read_bytes().split(b"\0")[0]:
        return None
    machine = Machine(console.parent, int(children[0]))
    state = machine.run("systemctl", "is-system-running", check=False)
    return machine.pid if state in {"running", "degraded"} else None


@contextlib.contextmanager
def _cgroup(name: str) -> Iterator[Path]:
    """Create a cgroup of the unified hierarchy below the present one; remove it with its content."""
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    places = [Path(fields[4]) for fields in mounts if fields[fields.index("-") + 1] == "cgroup2"]
    own = next(
        (line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")),
        None,
    )
    if not places or own is None:
        raise Unavailable("there is no unified cgroup hierarchy here, which systemd needs")
    made = places[0] / own.lstrip("/") / name
    try:
        made.mkdir()
    except OSError as error:
        raise Unavailable(f"cannot make the cgroup {made}, which systemd needs: {error}") from error
    try:
        yield made
    finally:
        wait_for(lambda: _remove_cgroup(made), f"{made} to be empty")


def _remove_cgroup(cgroup: Path) -> bool:
    for folder, _, _ in os.walk(cgroup, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return not cgroup.exists()
