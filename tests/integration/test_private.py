"""Private datasets and secrets on a real pool: jobs find their data, and no name or secret is visible.

The Rucio server is a stand-in that denies every login and repeats in its answer all that it was sent.
"""

import html
import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from testbed import processes
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import UIDS, Pool, SiteSpec

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

NAME = "canary-observation.ms"
CANARY = f"embargo:{NAME}"
PLAIN = "embargo:plain-2"
PARSET = "[global]\ndir_working = /data/run\ninput_ms = /home/me/field.ms\n"
STANDIN = ("--command", "/bin/sh -c 'echo DATA $INPUT_1; cat $0; echo i > rapthor/images/a.fits' run.parset")
SMALL = ("--cpus", "1", "--memory-gb", "0.01", "--disk-gb", "0.001")


class Talkative(BaseHTTPRequestHandler):
    """A server that denies every request, and repeats all of it, secrets too."""

    def do_GET(self):
        sent = sorted(self.headers.items(), key=lambda item: "Password" not in item[0])
        text = f"no such account: {sent}"
        body = json.dumps({"ExceptionClass": "CannotAuthenticate", "ExceptionMessage": text}).encode()
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("ExceptionClass", "CannotAuthenticate")
        self.send_header("ExceptionMessage", text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - as the server calls it

    def log_message(self, *_):
        pass


class Secrets:
    """Every secret of the installation, each in a file, each recognisable."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        self.known: dict[str, str] = {}
        self.keep("private-key", "canary-key-" + secrets.token_hex(32))
        self.keep("rucio-password", "canary/password+" + secrets.token_hex(8))

    def keep(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.touch(mode=0o600)
        file.write_text(text + "\n")
        self.known[name] = text
        return file

    def needles(self) -> list[str]:
        """Return the texts that must appear nowhere, in lower case; of pool tokens the secret parts."""
        parts = [part for text in self.known.values() for part in text.split(".") if len(part) > 20]
        return [text.lower() for text in [*parts, *self.known.values(), NAME, "canary"]]


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    return Secrets(tmp_path_factory.mktemp("hidden") / "secrets")


@pytest.fixture(scope="module")
def installed(htcondor_release: str, hidden: Secrets) -> Iterator[Installation]:
    """Start one installation for all tests in this file."""
    rucio = ThreadingHTTPServer(("127.0.0.1", 0), Talkative)
    threading.Thread(target=rucio.serve_forever, daemon=True).start()
    sites = (SiteSpec("UK", cpus=2), SiteSpec("AU", cpus=2))
    with Pool.start(htcondor_release, sites) as pool:
        catalogue = ListedCatalogue(pool.home, ("UK", "AU"))
        token_file = hidden.folder / "submit-token"
        hidden.known["idtoken"] = (pool.token("hydrator") / "token").read_text().strip()
        settings = f"""
tokens_file = "{hidden.folder}/tokens"
[log]
level = "debug"
[private]
patterns = ["embargo:*"]
key_file = "{hidden.folder}/private-key"
[[catalogue]]
type = "rucio"
name = "talkative"
url = "http://127.0.0.1:{rucio.server_port}"
account = "hydrator"
username = "hydrator"
password_file = "{hidden.folder}/rucio-password"
[submit]
names = {{ "field.ms" = "{CANARY}" }}
daemon_url = "http://127.0.0.1:PORT"
token_file = "{token_file}"
""" + "".join(
            f'[[storage]]\nsite = "{site.name}"\nprefix = "{pool.shared}/disk-{site.name}"\nrule = "name"\n'
            for site in sites
        )
        (hidden.folder / "tokens").touch(mode=0o600)
        installation = Installation(pool, catalogue, settings=settings)
        installation._settings = settings.replace("PORT", installation.url.rpartition(":")[2])
        disk = pool.shared / "disk-AU" / "embargo" / NAME
        disk.mkdir(parents=True)
        (disk / "table.dat").write_text("data")
        catalogue.hold(
            {CANARY: {"AU": "available"}, PLAIN: {"UK": "available"}, "lofar:L1": {"UK": "available"}}
        )
        with installation:
            for role in ("read", "submit"):
                hidden.keep(f"{role}-token", installation.run("token", "new", "--role", role).stdout.strip())
            yield installation
    rucio.shutdown()
    rucio.server_close()


def get(installed: Installation, hidden: Secrets, path: str, role: str = "read") -> httpx.Response:
    headers = {"Authorization": f"Bearer {hidden.known[f'{role}-token']}"}
    return httpx.get(installed.url + path, headers=headers, trust_env=False, timeout=120)


def opaque(installed: Installation, hidden: Secrets, did: str) -> str:
    (row,) = get(installed, hidden, f"/v1/private?did={did}", "submit").json()["datasets"]
    return str(row["name"])


def submit_run(installed: Installation) -> tuple[int, Path]:
    """Submit a Rapthor run on the private dataset as alice; return its job and its folder."""
    home = installed.pool.user_home("alice") / f"run-{secrets.token_hex(4)}"
    home.mkdir()
    (home / "field.parset").write_text(PARSET)
    made = installed.run(
        "submit", "rapthor", str(home / "field.parset"), "-o", str(home / "job"), *SMALL, *STANDIN
    )
    assert "canary" not in made.stdout + made.stderr
    folder = Path(made.stdout.strip())
    for path in (home, *home.rglob("*")):
        os.chown(path, UIDS["alice"], -1)
    output = installed.pool.run("condor_submit", "-terse", "field.sub", user="alice", cwd=folder).stdout
    return int(output.partition(".")[0]), folder


def assert_clean(where: str, text: str, hidden: Secrets) -> None:
    lower = text.lower()
    for needle in hidden.needles():
        at = lower.find(needle)
        if at >= 0:
            around = text[max(0, at - 200) : at + 100]
            pytest.fail(f"{where} shows {needle[:40]!r}: …{around}…")


def test_run_on_a_private_dataset_starts_beside_it_and_no_ad_shows_its_name(installed, hidden):
    job, folder = submit_run(installed)
    assert_clean("the queue", installed.pool.run("condor_q", "-allusers", "-l").stdout, hidden)
    assert installed.ran_at(job) == ["AU"]
    disk = installed.pool.shared / "disk-AU" / "embargo" / NAME
    out = (folder / "field.out").read_text()
    assert f"DATA {disk}" in out
    assert f'input_ms = ["{disk}"]' in out
    assert installed.states_at("AU") == {opaque(installed, hidden, CANARY): "AVAILABLE"}
    for tool in (("condor_history", "-l"), ("condor_status", "-any", "-l"), ("condor_status", "-l")):
        assert_clean(" ".join(tool), installed.pool.run(*tool).stdout, hidden)


def test_job_with_the_plain_name_of_a_private_dataset_gets_advice_from_why(installed, hidden):
    job = installed.submit([PLAIN], mode="require")

    def masked() -> list[dict]:
        rows = get(installed, hidden, "/v1/datasets").json()["datasets"]
        return [row for row in rows if row["did"].startswith("private-in-plain:")]

    (row,) = installed.pool.wait(masked, 30, "the daemon to hear of the job")
    assert (row["jobs"], row["sites"]) == (1, [])
    (ad,) = installed.pool.jobs(f"ClusterId == {job}", "QDate")
    refused = f"ClusterId == {job} && LastRejMatchTime > {ad['QDate'] + 2}"
    installed.pool.wait(lambda: installed.pool.jobs(refused), 60, "the negotiator to refuse it")
    output = installed.run("why", str(job), check=False)
    assert output.returncode == 3
    assert f"{PLAIN} is private and is never advertised under its own name" in output.stdout
    assert "submit the job again with `hydrator submit`" in output.stdout
    page = get(installed, hidden, f"/why?job={job}")
    assert page.status_code == 200
    hidden_name = opaque(installed, hidden, PLAIN)
    assert "private:[hidden] is private and is never advertised under its own name" in page.text
    assert hidden_name not in page.text  # it is for those who exchanged the name
    assert_clean("the page", page.text, hidden)
    assert PLAIN not in page.text
    assert html.escape(output.stdout.splitlines()[0]) in page.text  # the same verdict
    assert get(installed, hidden, "/why?job=987654").status_code == 404
    cluster_page = get(installed, hidden, f"/run?cluster={job}")
    assert (cluster_page.status_code, "1 job: 1 waits" in cluster_page.text) == (200, True)
    assert_clean("the page of the cluster", cluster_page.text, hidden)
    assert hidden_name not in cluster_page.text
    assert PLAIN not in cluster_page.text
    assert get(installed, hidden, "/run?cluster=987654").status_code == 404
    assert PLAIN not in installed.pool.run("condor_status", "-any", "-l").stdout
    installed.pool.run("condor_rm", str(job))


def test_why_before_submit_exchanges_the_private_name(installed, hidden):
    output = installed.run("why", CANARY, check=False)
    assert "all data is at AU" in output.stdout
    assert output.returncode == 0


def test_daemon_without_its_pseudonym_store_still_resolves_queued_jobs(installed, hidden):
    name = opaque(installed, hidden, CANARY)
    installed.stop_daemon()
    for file in (installed.home / "state").iterdir():
        if file.is_file():
            file.unlink()
    job = installed.submit([name], mode="require")
    installed.start_daemon()
    assert installed.ran_at(job) == ["AU"]
    assert "canary" not in str(installed.status())


def test_no_secret_and_no_private_name_is_visible_anywhere(installed, hidden):
    submit_run(installed)
    installed.pool.wait(lambda: "talkative" in installed.log, 30, "the catalogue to have refused the daemon")
    json_too = [["status"], ["sites"], ["datasets"], ["plan"], ["check"]]
    for words in (*json_too, *([*words, "--json"] for words in json_too[:4]), ["submit", "pool-config"]):
        done = installed.run(*words, check=False)
        assert_clean(f"hydrator {' '.join(words)}", done.stdout + done.stderr, hidden)
        assert "Traceback" not in done.stderr
    ads = ("/v1/sites/AU/ad", "/v2/sites/AU/ad")
    for path in ("/", "/v1/sites", *ads, "/v1/datasets", "/metrics", "/healthz", "/v1/nothing"):
        answer = get(installed, hidden, path)
        assert_clean(path, f"{answer.headers}{answer.text}", hidden)
    assert_clean("the log", installed.log, hidden)
    assert "talkative" in installed.log  # it was refused, and said so
    for pid, command in family(installed._daemon.pid).items():
        assert_clean(f"the command of process {pid}", command, hidden)
        environ = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        assert_clean(f"the environment of process {pid}", environ, hidden)
    for file, content in open_to_all(installed.home, installed.ads).items():
        assert_clean(str(file), content.decode("latin-1"), hidden)


def test_configuration_with_a_secret_in_it_is_rejected_without_printing_it(installed, hidden):
    config = installed.home / "with-secret.toml"
    password = hidden.known["rucio-password"]
    text = installed.config.read_text()
    config.write_text(re.sub(r"(?m)^password_file = .*$", f'password = "{password}"', text))
    done = installed.run("check", "--config", str(config), check=False)
    assert done.returncode == 2
    assert_clean("the refusal", done.stdout + done.stderr, hidden)
    assert "set password_file to the path of " in done.stderr


def family(pid: int) -> dict[int, str]:
    """Return a process and its descendants, each with its command line."""
    family = {pid: processes.each("cmdline")[pid], **processes.below(pid)}
    assert len(family) > 1  # the child that holds the bindings, at least
    return family


def open_to_all(*folders: Path) -> dict[Path, bytes]:
    """Return the files below *folders* that every user may read, without the configuration itself."""
    found = {}
    for file in (file for folder in folders for file in folder.rglob("*")):
        with suppress(FileNotFoundError):  # a new file that has just got its name, which is listed, too
            if file.is_file() and file.suffix != ".toml" and file.stat().st_mode & stat.S_IROTH:
                found[file] = file.read_bytes()
    return found
