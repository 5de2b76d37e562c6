"""The least rights that the daemon needs in a pool: it works with them, and names one that is missing."""

from collections.abc import Iterator

import pytest

from testbed.installation import Installation, ListedCatalogue
from testbed.pool import DOMAIN, Pool, SiteSpec

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

US = f"hydrator@{DOMAIN}"
OTHERS = f"condor@{DOMAIN} admin@{DOMAIN} alice@{DOMAIN} bob@{DOMAIN}"
RIGHTS = {
    "COLLECTOR.ALLOW_READ": f"{OTHERS} {US}",
    "COLLECTOR.ALLOW_DAEMON": f"condor@{DOMAIN} {US}",
    "SCHEDD.ALLOW_READ": f"{OTHERS} {US}",
    "NEGOTIATOR.ALLOW_READ": f"{OTHERS} {US}",
    "DENY_WRITE": US,
}
"""Lines of docs/operators/security.md, in a pool that allows no other client anything."""
LEVELS = (
    "READ",
    "WRITE",
    "DAEMON",
    "NEGOTIATOR",
    "ADMINISTRATOR",
    "CONFIG",
    "ADVERTISE_STARTD",
    "ADVERTISE_SCHEDD",
)
NEEDED = {
    ("collector", "READ"), ("collector", "DAEMON"), ("schedd", "READ"), ("negotiator", "READ"),
}  # fmt: skip


def configuration(without: str | None = None) -> str:
    """Return the pool's authorization lists, one of them *without* the daemon."""
    rights = {key: value.replace(US, "") if key == without else value for key, value in RIGHTS.items()}
    return "\n".join([f"ALLOW_READ = {OTHERS}", *(f"{key} = {value}" for key, value in rights.items())])


@pytest.fixture(scope="module")
def strict(htcondor_release: str) -> Iterator[Pool]:
    with Pool.start(htcondor_release, (SiteSpec("UK", cpus=1),), {"all": configuration()}) as pool:
        yield pool


@pytest.fixture
def installed(strict: Pool) -> Iterator[Installation]:
    """A daemon's configuration, with the token that docs/operators/security.md describes."""
    installation = Installation(strict, ListedCatalogue(strict.home, ("UK",)))
    installation._client_config = strict.client("hydrator", ["READ", "DAEMON"])
    installation.install()
    yield installation
    strict.reconfig(all=configuration())
    strict.wait(
        lambda: all(allowed(strict, *right) for right in NEEDED), "the daemons to have read their lists again"
    )


def as_us(pool: Pool) -> dict[str, str]:
    """Return the environment of a tool in the pool that has the daemon's limited token, and no other."""
    folder = str(pool.token("hydrator", ["READ", "DAEMON"], uid=0))
    return {"_CONDOR_SEC_TOKEN_DIRECTORY": folder, "_CONDOR_SEC_TOKEN_SYSTEM_DIRECTORY": folder}


def allowed(pool: Pool, daemon: str, level: str) -> bool:
    asked = pool.run(
        "condor_ping", "-quiet", "-type", daemon, level, user="hydrator", env=as_us(pool), check=False
    )
    return asked.returncode == 0


def deny(pool: Pool, right: str) -> None:
    """Remove one right of the daemon, and wait until the HTCondor daemon in question applies it."""
    daemon, level = right.lower().replace("allow_", "").split(".")
    pool.reconfig(all=configuration(right))
    pool.wait(lambda: not allowed(pool, daemon, level.upper()), f"{right} to be taken from us")


def failures(installation: Installation) -> list[dict]:
    return [finding for finding in installation.findings() if finding["level"] == "fail"]


def test_daemon_works_with_the_documented_rights_alone(installed):
    assert failures(installed) == []
    installed.catalogue.hold({"lofar:L1": {"UK": "available"}})
    job = installed.submit(["lofar:L1"], more="requirements = false")  # else it runs before anybody asked

    def advertised() -> list[dict]:
        assert installed.run("once").stderr == ""
        names = ("AvailableDatasets", "AuthenticatedIdentity")
        return installed.pool.ads('MyType == "DataLocality" && size(AvailableDatasets) > 0', *names)

    ads = installed.pool.wait(advertised, "the job's dataset to be advertised")
    assert ads == [{"AvailableDatasets": ["lofar:L1"], "AuthenticatedIdentity": US}]
    installed.pool.run("condor_rm", str(job), user="alice")


def test_daemon_token_allows_nothing_else_anywhere(strict):
    kinds = ("collector", "schedd", "negotiator", "startd", "master")
    found = {(kind, level) for kind in kinds for level in LEVELS if allowed(strict, kind, level)}
    assert found == NEEDED


@pytest.mark.parametrize(
    ("right", "subject", "said"),
    [
        ("COLLECTOR.ALLOW_DAEMON", "collector", "refuses site ads (DAEMON)"),
        ("COLLECTOR.ALLOW_READ", "collector", "refuses queries (READ)"),
        ("SCHEDD.ALLOW_READ", "schedd ", "the query failed"),
        ("NEGOTIATOR.ALLOW_READ", "negotiator", "the client needs READ there"),
    ],
)
def test_missing_right_is_one_finding_that_says_what_to_allow(strict, installed, right, subject, said):
    deny(strict, right)
    (finding,) = failures(installed)
    assert finding["subject"].startswith(subject)
    assert said in finding["message"]
    assert US in finding["message"]
    advice = finding["message"] + finding["todo"]
    assert right in advice or right.partition(".")[2] in advice
