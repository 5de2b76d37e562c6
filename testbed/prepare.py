"""Download, once, what the tests on real parts need: ``python -m testbed.prepare [PART…]``.

The first test that needs a part would do the same; this does it beforehand, one part after the other,
so that no test waits for a download, or runs beside one.
"""

import sys
from collections.abc import Callable, Sequence

from . import (
    apache,
    browser,
    debian,
    debs,
    helm,
    kubernetes,
    machine,
    neighbours,
    nginx,
    postgres,
    rapthor,
    recipes,
    rucio,
    stepped,
    toil,
)
from .cached import Unavailable


def main(chosen: Sequence[str]) -> int:
    """Download the *chosen* parts, or all; 1 when one of them is unavailable, 2 for an unknown name."""
    parts = _parts()
    if unknown := [name for name in chosen if name not in parts]:
        _say(f"{unknown[0]!r} is not a part: choose from {', '.join(parts)}")
        return 2
    failed = 0
    for name in chosen or parts:
        try:
            _say(f"{name}: {parts[name]()}")
        except Unavailable as reason:
            _say(f"{name}: {reason}")
            failed = 1
    return failed


def _parts() -> dict[str, Callable[[], object]]:
    """Return the function that downloads a part, by its name."""
    parts: dict[str, Callable[[], object]] = {
        f"HTCondor {release}": lambda suite=suite: debian.tree(suite, _say)  # type: ignore[misc]
        for release, suite in debian.SUITES.items()
    }
    parts["Rucio"] = rucio.server_python
    parts["Rucio on PostgreSQL"] = lambda: rucio.server_python(postgresql=True)
    parts["PostgreSQL"] = lambda: postgres.initdb()[0]
    parts["Apache"] = lambda: apache.apache2()[0]
    parts["libfaketime"] = stepped.fake_clock
    parts["nginx"] = lambda: nginx.nginx_program()[0]
    parts["Rapthor"] = rapthor.python
    parts["dask-jobqueue, Snakemake and HTMap"] = recipes.python
    parts["PanDA"] = neighbours.panda_python
    parts["Debian 12 under systemd"] = machine.base
    parts["Debian 13 under systemd"] = machine.layers
    parts["buildah"] = lambda: debs.program("buildah", "buildah", "usr/bin")[0]
    parts["crun"] = lambda: debs.program("crun", "crun", "usr/bin")[0]
    parts["Prometheus"] = lambda: debs.promtool()[0]
    parts["Chromium"] = lambda: browser.chromium()[0]
    parts["Chromium's driver"] = browser.driver
    parts["Helm 4"] = helm.engine
    parts["Kubernetes' schemas"] = kubernetes.schemas
    parts["Rapthor's example"] = lambda: f"{len(rapthor.example())} characters"
    parts["Toil"] = toil.prepare
    return parts


def _say(text: str) -> None:
    print(f"prepare: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
