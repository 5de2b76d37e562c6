"""A real browser without a window, for tests of the page: Debian's Chromium, driven by Playwright.

Both are unpacked into the cache folder, nothing is installed on the machine.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .cached import built
from .debs import DebUnavailable, program

LOCK = Path(__file__).with_name("browser.lock")
FONTS = Path("/etc/fonts/fonts.conf")


class BrowserUnavailable(Exception):
    """The browser or its driver cannot be installed; the text ends with the error of apt-get or pip."""


def chromium() -> tuple[Path, Mapping[str, str]]:
    """Return the browser, and its environment; download it first if the machine has none (300 MB on disk).

    Raises:
        BrowserUnavailable: apt-get could not download it.
    """
    try:
        found, environment = program("chromium-headless-shell", "chromium-headless-shell", "usr/lib/chromium")
    except DebUnavailable as why:
        raise BrowserUnavailable(str(why)) from why
    root = found.parents[3]
    if environment:  # a library of its own, of PulseAudio, is deeper than the rest
        deeper = [str(path) for path in root.glob("usr/lib/*-linux-gnu/pulseaudio")]
        environment = {"LD_LIBRARY_PATH": ":".join([environment["LD_LIBRARY_PATH"], *deeper])}
    if FONTS.exists() or root == Path("/"):
        return found, environment
    own = root / "fonts.conf"
    if not own.exists():  # the tree's own fonts, where the machine has none
        own.write_text(f"<fontconfig><dir>{root}/usr/share/fonts</dir></fontconfig>\n", "utf-8")
    return found, {**environment, "FONTCONFIG_FILE": str(own)}


def driver() -> Path:
    """Return the folder, for sys.path, with ``playwright`` and ``axe_playwright_python``.

    Raises:
        BrowserUnavailable: pip could not install them.
    """
    return built("browser-driver", LOCK.read_bytes(), _install)


def _install(home: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = ["--only-binary=:all:", "--no-deps", "--require-hashes", "-r", str(LOCK), "--target", str(home)]
    done = subprocess.run([*pip, *wanted], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise BrowserUnavailable(f"cannot install the browser's driver: {done.stderr.strip()[-600:]}")
