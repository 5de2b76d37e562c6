"""Promtool, out of Debian's package: unpacked into the cache folder, not installed."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from .cached import Unavailable, built

RECIPE = b"apt-get download prometheus; usr/bin/promtool"


def promtool() -> str:
    """Return the program's path: the machine's own, else one that is downloaded once (18 MB).

    Raises:
        Unavailable: see there.
    """
    return shutil.which("promtool") or str(built("prometheus", RECIPE, _unpack) / "promtool")


def _unpack(home: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("there is neither promtool nor an apt-get to fetch one")
    with tempfile.TemporaryDirectory() as scratch:
        failure = _run(["apt-get", "download", "prometheus"], scratch)
        if failure:
            _run(["apt-get", "update"], scratch)
            failure = _run(["apt-get", "download", "prometheus"], scratch)
        if failure:
            raise Unavailable(f"apt-get cannot download prometheus: {failure}")
        [package] = Path(scratch).glob("prometheus_*.deb")
        if failure := _run(["dpkg-deb", "-x", str(package), "tree"], scratch):
            raise Unavailable(f"dpkg-deb cannot unpack {package.name}: {failure}")
        home.mkdir()
        shutil.copy2(Path(scratch) / "tree" / "usr" / "bin" / "promtool", home)


def _run(command: list[str], folder: str) -> str:
    """Run *command* in *folder*; return its error, or nothing."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return (done.stderr.strip()[-300:] or "it does not say why") if done.returncode else ""
