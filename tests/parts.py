"""Real parts that tests need: a test without one is skipped, and listed in red; in CI it fails."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from testbed.cached import Unavailable

NO_POOL = "no HTCondor pool"
NO_RUCIO = "no real Rucio server"
NO_NGINX = "no nginx"
NO_POSTGRES = "no PostgreSQL under Rucio"
NO_RAPTHOR = "no Rapthor"
NO_TOIL = "no Toil"
NO_RECIPES = "no dask-jobqueue or Snakemake"
NO_PANDA = "no PanDA"
NO_SYSTEMD = "no systemd"
NO_IMAGE = "no container image"
NO_HELM = "no Helm"
NO_PROMETHEUS = "no Prometheus"
NO_BROWSER = "no browser"
NO_FAKE_CLOCK = "no libfaketime"
NO_READER = "no reader of shell scripts"
NO_PYTHON = "no other Python"

MISSED = {
    NO_POOL: "A REAL POOL",
    NO_RUCIO: "A REAL RUCIO SERVER",
    NO_NGINX: "AN NGINX BEFORE OUR SERVER",
    NO_POSTGRES: "A POSTGRESQL UNDER RUCIO",
    NO_RAPTHOR: "A REAL RAPTHOR",
    NO_TOIL: "A REAL TOIL",
    NO_RECIPES: "DASK-JOBQUEUE, SNAKEMAKE AND HTMAP",
    NO_PANDA: "A REAL PANDA",
    NO_SYSTEMD: "A REAL SYSTEMD",
    NO_IMAGE: "A CONTAINER IMAGE",
    NO_HELM: "A REAL HELM AND KUBERNETES' SCHEMAS",
    NO_PROMETHEUS: "A REAL PROMETHEUS",
    NO_BROWSER: "A REAL BROWSER",
    NO_FAKE_CLOCK: "A CLOCK THAT CAN BE SET",
    NO_READER: "BUSYBOX OR SHELLCHECK",
    NO_PYTHON: "PYTHON 3.12",
}
"""Names in the summary."""


def without(what: str, reason: object) -> NoReturn:
    """Skip a test for lack of *what*; in CI, which must have everything, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}, and this is CI: {reason}", pytrace=False)
    pytest.skip(f"{what}: {reason}")


@contextmanager
def needs(what: str) -> Iterator[None]:
    """Skip or fail the test if *what* cannot be fetched or started inside."""
    try:
        yield
    except Unavailable as reason:
        without(what, reason)
