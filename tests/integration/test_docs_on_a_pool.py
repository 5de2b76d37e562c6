"""Configuration and commands of the docs, as printed, on a pool with HTCondor's own recommended security.

Only the made-up names of a page (a domain, a host, a folder) are replaced in a block.
"""

import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hydrator.submit.pool_config import allow_lines
from testbed.files import write_program, write_secret
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import DOMAIN, Pool, SiteSpec
from testbed.processes import run_program
from tests.pages import ROOT, Block, blocks

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

TOOLS = {
    "condor_token_create": "root",
    "condor_qusers": "root",
    "condor_reconfig": "root",
    "condor_status": "hydrator",
    "condor_submit": "alice",
}
"""Who types what."""
DATASETS = ("lofar:L1", "lofar:L2", "lofar:L667526_SB001", "lofar:L667526_SB002")
SETTINGS = """
[submit]
cpus = 1
memory_gb = 1
disk_gb = 1
names = { "L1.ms" = "lofar:L1" }
[[storage]]
site = "UK"
prefix = "/data"
rule = "name"
"""
LEVELS = ("DAEMON", "NEGOTIATOR", "WRITE", "ADVERTISE_STARTD")


@dataclass(frozen=True)
class Operator:
    """An operator who follows the pages; commands are typed in *folder*."""

    installed: Installation
    folder: Path
    before: dict[str, str] = field(default_factory=dict)
    """What the pool's daemons were configured with before our texts, see `values`."""
    typed: set[str] = field(default_factory=set)
    """The commands that were run: several pages have the same."""

    @property
    def pool(self) -> Pool:
        return self.installed.pool

    def here(self, text: str, more: Mapping[str, str] | None = None) -> str:
        """Return *text* with this folder's names instead of the made-up ones of the pages."""
        names = {
            "/opt/classad-hydrator/bin/": "",
            "/etc/classad-hydrator/tokens.d": f"{self.folder}/tokens.d",
            "/etc/classad-hydrator/config.toml": str(self.installed.config),
            "/etc/condor/config.d/": f"{self.folder}/config.d/",
            "$PWD/classad-hydrator-hook": str(self.installed.hook),
            "$DAEMON": f"{self.installed.url} --token-file {self.folder}/hook-token",
            "https://hydrator.example.org:8471": self.installed.url,
            "https://hydrator.example.org": f"{self.installed.url} --token-file {self.folder}/hook-token",
            "YOUR.DOMAIN": DOMAIN,
            "CE:9619": self.pool.collector,
            "cm.example.org": self.pool.collector,
            **(more or {}),
        }
        for there, instead in names.items():
            text = text.replace(there, instead)
        return text

    def type(
        self, text: str, more: Mapping[str, str] | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run *text* in a shell in the folder."""
        path = f"{self.folder}/bin{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return run_program(
            ["bash", "-euo", "pipefail", "-c", self.here(text, more)],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": path,
                "HYDRATOR_CONFIG": str(self.installed.config),
                "CONDOR_CONFIG": str(self.installed._client_config),
                **environment,
            },
            stdin=subprocess.DEVNULL,
            timeout=300,
        )

    def may(self, level: str, identity: str, authz: tuple[str, ...] = ()) -> bool:
        """Return True if the collector allows *identity* the level *level*."""
        folder = str(self.pool.token(identity, authz, uid=0))
        env = dict.fromkeys(("_CONDOR_SEC_TOKEN_DIRECTORY", "_CONDOR_SEC_TOKEN_SYSTEM_DIRECTORY"), folder)
        words = ("condor_ping", "-quiet", "-type", "collector", level)
        return self.pool.run(*words, user="root", env=env, check=False).returncode == 0


@pytest.fixture(scope="module")
def fresh(htcondor_release: str) -> Iterator[Operator]:
    """Start a pool as HTCondor's package sets it up, with the daemon's configuration beside it."""
    with Pool.start(htcondor_release, (SiteSpec("UK", cpus=4),), recommended=True) as pool:
        folder = pool.shared / "operator"
        for name in ("bin", "config.d", "tokens.d", "editor-tokens.d"):
            (folder / name).mkdir(parents=True)
        folder.chmod(0o755)
        (folder / "tokens.d").chmod(0o700)
        shutil.copytree(ROOT / "deploy" / "condor", folder / "deploy" / "condor")
        for tool, user in TOOLS.items():
            pool.tool(tool, user, folder / "bin")
        catalogue = ListedCatalogue(pool.home, ("UK",))
        catalogue.hold({did: {"UK": "available"} for did in DATASETS})
        http = f'tokens_file = "{folder}/tokens"\n'
        installation = Installation(pool, catalogue, settings=http + SETTINGS)
        installation._client_config = pool.client("hydrator", ("READ", "DAEMON"))
        installation.install()
        yield Operator(installation, folder)


@pytest.fixture(scope="module")
def operator(fresh: Operator) -> Iterator[Operator]:
    """Return the operator after all steps of the pages, in their order: token, lists, daemon, texts, hook."""
    pool = fresh.pool
    [first, *_] = [block for block in blocks("sh pool") if block.page == "security.md"]
    made = fresh.type(first.text)
    assert made.returncode == 0, made.stderr
    token = (fresh.folder / "hydrator.token").read_text()
    (pool.token("hydrator", ("READ", "DAEMON")) / "token").write_text(token)
    write_secret(fresh.folder / "tokens.d" / "hydrator", token)
    assert not fresh.may("DAEMON", "hydrator", ("READ", "DAEMON")), "the pool allows us something already"
    site = fresh.type("hydrator token new --site UK > hook-token; chmod 644 hook-token")
    assert site.returncode == 0, site.stderr
    pool.reconfig(all=lines(fresh))
    fresh.before.update(values(pool))
    for role in ROLES:
        done = fresh.type(f"hydrator pool-config --role {role} > config.d/{ours(role)}")
        assert done.returncode == 0, done.stderr
    pool.run("condor_reconfig", "-all")
    pool.wait(lambda: fresh.may("DAEMON", "hydrator", ("READ", "DAEMON")), "the collector to let us in")
    fresh.installed.start_daemon()
    try:
        for daemon in ("collector", "negotiator", "schedd", "startd:UK"):  # the hook's period is five minutes
            pool.restart_daemon(daemon)
        pool.wait_ready()
        pool.wait(fresh.installed.is_hydrated, "the slots to carry our attributes")
        yield fresh
    finally:
        fresh.installed.stop_daemon()


def lines(operator: Operator) -> str:
    """Return all configuration of the pages; the daemons read also the folder that the texts go to."""
    texts = [operator.here(text) for text in [*(block.text for block in blocks("text condor")), hook_lines()]]
    return "\n".join([f"LOCAL_CONFIG_DIR = {operator.folder}/config.d", *texts])


def hook_lines() -> str:
    """Return the configuration of the hook, which a command of the page writes."""
    [text] = [block.text for block in blocks("sh bare") if "STARTD_CRON_JOBLIST" in block.text]
    return re.sub(r".*<<END\n(.*)^END$.*", r"\1", text, flags=re.DOTALL | re.MULTILINE).replace("\\$", "$")


def ours(role: str) -> str:
    """Return the name of the file with the text for *role*, as on the pages."""
    return f"99-datalocality-{role}.conf"


EXTENDED = {
    "schedd": (
        *("JOB_TRANSFORM_NAMES", "SUBMIT_REQUIREMENT_NAMES", "IMMUTABLE_JOB_ATTRS", "PROTECTED_JOB_ATTRS"),
        *("SYSTEM_JOB_MACHINE_ATTRS", "ADD_SIGNIFICANT_ATTRIBUTES", "SCHEDD_ENABLE_PER_USER_MATCH_LIMITS"),
    ),
    "startd": ("START",),
    "negotiator": ("NEGOTIATOR_PRE_JOB_RANK",),
}
"""The parameters that our texts set or extend."""


def values(pool: Pool) -> dict[str, str]:
    """Return by daemon and parameter what our texts extend, as the daemons themselves answer."""
    return {
        f"{role} {name}": pool.run("condor_config_val", f"-{role}", name, check=False).stdout.strip()
        for role, names in EXTENDED.items()
        for name in names
    }


ROLES = ("schedd", "startd", "negotiator")
BASES = {
    "what the package has": "",
    "get_htcondor": "use security:get_htcondor_idtokens\n",
    "no list for daemons": "ALLOW_WRITE = condor@b.test\n",
    "a list of the daemon's own": "ALLOW_DAEMON = a@b.test\nCOLLECTOR.ALLOW_DAEMON = condor@b.test\n",
}


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_configuration_lines_of_the_pages_remove_no_member_of_a_list(fresh, base):
    """A daemon's list after the line has all members that it had before the line, and more."""
    package = "" if base else "use security:recommended_v9_0\n"
    file = fresh.pool.shared / "lists.conf"
    common = f"UID_DOMAIN = {DOMAIN}\nTRUST_DOMAIN = {DOMAIN}\nLOCAL_CONFIG_DIR =\n{package}{base}"
    texts = [
        fresh.here(block.text).splitlines() for words in ("text condor", "sh bare") for block in blocks(words)
    ]
    texts += [allow_lines("collector", level, f"us@{DOMAIN}") for level in ("READ", "DAEMON", "NEGOTIATOR")]
    extending = [[line for line in text if re.match(r"[\w.]+ = \$\(", line)] for text in texts]
    assert len([line for lines in extending for line in lines]) > 12

    def words(config: str, daemon: str, name: str) -> set[str]:
        file.write_text(config)
        whose = ("-subsys", daemon) if daemon else ()
        env = {"CONDOR_CONFIG": str(file)}
        done = fresh.pool.run("condor_config_val", *whose, name, env=env, check=False)
        found = set(re.split(r"[\s,]+", done.stdout.strip())) - {""} if done.returncode == 0 else set()
        # HTCondor's own rule
        return found or (words(config, daemon, "ALLOW_WRITE") if name == "ALLOW_DAEMON" else found)

    for lines in extending:
        for line in lines:
            daemon, _, name = line.split(" = ", maxsplit=1)[0].rpartition(".")
            before, after = (words(text, daemon, name) for text in (common, common + "\n".join(lines)))
            assert before == after if name == "ALLOW_DAEMON" and not daemon else before < after, line


def test_after_all_of_it_the_daemons_still_reach_their_collector_and_strangers_do_not(operator):
    """Their ads are visible after a restart, each with the identity that the collector authenticated."""
    ours = ("READ", "DAEMON")
    assert {level for level in LEVELS if operator.may(level, "hydrator", ours)} == {"DAEMON"}
    assert not any(operator.may(level, "stranger") for level in LEVELS if level != "WRITE")
    wanted = {"Machine", "Scheduler", "Negotiator", "DaemonMaster"}
    daemons: dict[str, str] = {}

    def advertised() -> bool:
        found = operator.pool.ads('MyType != "DataLocality"', "MyType", "AuthenticatedIdentity")
        daemons.update({ad["MyType"]: ad.get("AuthenticatedIdentity", "") for ad in found})
        return daemons.keys() >= wanted

    operator.pool.wait(advertised, "the ads of all daemons")  # the master sends its own every 20 s
    assert {daemons[kind].partition("@")[0] for kind in ("Machine", "Scheduler")} <= {"condor", "root"}

    def of_sites() -> list[dict[str, object]]:
        return operator.pool.ads('MyType == "DataLocality"', "AuthenticatedIdentity")

    site_ads = operator.pool.wait(of_sites, "the site ads, after the collector's restart")
    assert [ad["AuthenticatedIdentity"] for ad in site_ads] == [f"hydrator@{DOMAIN}"]


@pytest.mark.parametrize("block", blocks("text submit"), ids=str)
def test_submit_file_lines_of_a_page_are_accepted_and_transformed(operator, block):
    text = block.text
    if "+RequiredDatasets" not in text:
        text = f'+RequiredDatasets = {{"lofar:L667526_SB001", "lofar:L667526_SB002"}}\n{text}'
    if "queue" not in text:
        text = f"executable = analyse.sh\n{text}queue\n"
    write_program(operator.pool.user_home("alice") / "analyse.sh", "#!/bin/sh\nexit 0\n")
    job = operator.pool.submit(text, "alice", "-append", "hold = true")
    ad = operator.pool.job(job, "DataLocalityTransformed", "DataLocalityHere")
    operator.pool.run("condor_rm", str(job), user="alice")
    assert ad is not None
    assert ad["DataLocalityTransformed"] is True
    assert ad["DataLocalityHere"]


ODD = {
    "hydrator check": {0, 1},  # the pool may lack what the pages advise
    "hydrator why 1234": {0, 3},
    "HYDRATOR_HTCONDOR__TOKEN_DIRECTORY=DIR hydrator run-anywhere 1234": {0, 1},  # no such job
    "hydrator pool-config --role schedd > new": {0, 1},  # diff: the text may differ by now
}
"""By the beginning of a command, the exit statuses that are none of its faults."""
LAST = "run-anywhere"
"""The command that ends something: it is typed after all others."""


def typed() -> list[Block]:
    """Return the commands of the page, those that end something last."""
    return sorted(blocks("sh pool"), key=lambda block: LAST in block.text)


@pytest.mark.parametrize("block", typed(), ids=str)
def test_the_commands_of_a_page_run_as_printed(operator, block):
    commands = re.sub(r" \\\n +", " ", block.text).splitlines()
    for command in commands:
        if bare(command) in operator.typed:
            continue
        operator.typed.add(bare(command))
        done = prepared(operator, command)
        allowed = next((codes for begin, codes in ODD.items() if command.startswith(begin)), {0})
        assert done.returncode in allowed, f"{command}: {done.returncode}: {done.stderr}{done.stdout[-2000:]}"
        assert "Traceback" not in done.stderr


def bare(command: str) -> str:
    """Return *command* without its comment and the name of its configuration."""
    return re.sub(r" -c \S+|\s+#.*", "", command)


def test_the_deleted_files_give_the_pool_back_as_it_was(operator):
    """The steps of docs/operators/operate.md; the daemons return their own configuration."""
    pool = operator.pool
    assert values(pool) != operator.before
    for role in ROLES:
        (operator.folder / "config.d" / ours(role)).unlink()
    pool.run("condor_reconfig", "-all")
    pool.wait(lambda: values(pool) == operator.before, "the daemons to have their values again")
    job = pool.submit('executable = /bin/true\n+RequiredDatasets = {"lofar:L1"}\nhold = true\nqueue\n')
    assert "DataLocalityTransformed" not in (pool.job(job) or {})


def prepared(operator: Operator, command: str) -> subprocess.CompletedProcess[str]:
    """Run one command of a page after the preparation that it needs: a job, a token, answers."""
    if command.startswith("hydrator init"):
        return answered(operator, command)
    more: dict[str, str] = {}
    env: dict[str, str] = {}
    if "=DIR " in command:
        more["=DIR "] = f"={operator.pool.token('condor')} "
    if " why " in command:
        more["1234"] = str(operator.installed.submit(["lofar:L1"], more="requirements = false"))
    furnish(operator)
    if not command.startswith("hydrator once"):
        return operator.type(command, more, **env)
    operator.installed.stop_daemon()  # on the page it does not run yet
    try:
        return operator.type(command)
    finally:
        operator.installed.start_daemon()


def furnish(operator: Operator) -> None:
    """Create the files that the pages assume."""
    files = {
        "job.sub": "executable = /bin/true\nrequest_memory = 10\nrequest_disk = 1\nhold = true\nqueue\n",
        "two.sub": "executable = /bin/true\narguments = lofar:L1\nqueue\n",
        "two.dag": "JOB A two.sub\n",
        "run.parset": "[global]\ndir_working = /scratch\ninput_ms = /data/L1.ms\n",
    }
    for name, text in files.items():
        (operator.folder / name).write_text(text)
    hook = operator.folder / "classad-hydrator-hook"
    shutil.copy2(operator.installed.hook, hook)


def answered(operator: Operator, command: str) -> subprocess.CompletedProcess[str]:
    """Run ``hydrator init`` as printed, at a terminal with answers to its questions."""
    inner, outer = pty.openpty()
    os.write(inner, f"file\n{operator.pool.home}/catalogue.json\n\n".encode())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    fresh = operator.folder / "init.toml"
    fresh.unlink(missing_ok=True)  # two pages begin so
    environment = {
        **os.environ,
        "PATH": path,
        "HYDRATOR_CONFIG": str(fresh),
        "CONDOR_CONFIG": str(operator.installed._client_config),
    }
    try:
        done = run_program(
            ["bash", "-euo", "pipefail", "-c", operator.here(command)],
            cwd=operator.folder,
            env=environment,
            stdin=outer,
            timeout=300,
        )
    finally:
        os.close(inner)
        os.close(outer)
    assert done.returncode or "catalogue.json" in fresh.read_text()
    return done
