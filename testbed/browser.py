"""A real browser without a window, for tests of the page: Debian's Chromium, driven by Playwright.

Both are unpacked into the cache folder, nothing is installed on the machine.
"""

from collections.abc import Mapping
from pathlib import Path

from .cached import built, install_wheels
from .debs import program

LOCK = Path(__file__).with_name("browser.lock")
FONTS = Path("/etc/fonts/fonts.conf")


def chromium() -> tuple[Path, Mapping[str, str]]:
    """Return the browser, and its environment; download it first if the machine has none (300 MB on disk).

    Raises:
        Unavailable: apt-get could not download it.
    """
    found, environment = program("chromium-headless-shell", "chromium-headless-shell", "usr/lib/chromium")
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
        Unavailable: pip could not install them.
    """
    return built("browser-driver", LOCK.read_bytes(), _install)


def _install(home: Path) -> None:
    install_wheels(home, LOCK, "the browser's driver")
