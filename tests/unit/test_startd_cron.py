"""The hook: whole runs against real files and real HTTP servers."""

import gzip
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from hydrator import startd_cron as hook
from hydrator.submit import job_wrapper
from testbed.files import umask, write_program
from testbed.loopback import LoopbackRequest, LoopbackServer
from testbed.patience import wait_for
from testbed.processes import run_program
from tests.pythons import pythons

pytestmark = pytest.mark.outside

HOOK = Path(hook.__file__)
WRAPPER = Path(job_wrapper.__file__)
NOW = 1_763_690_400
STATES = """['a:1'="AVAILABLE";'b:2'="AVAILABLE";'c:3'="STAGING"]"""


ADDED = {**hook.EXPRESSIONS, "DataLocalitySource": '"hook"'}
"""What the hook adds to the daemon's attributes."""
NO_OPENINGS = dict.fromkeys(hook.OPENINGS)


def ad_lines(**changes: str | None) -> dict[str, str]:
    """The contract's attributes as the daemon writes them; None leaves one out."""
    lines = {
        "DataLocalitySite": '"UK"',
        "AvailableDatasets": '{"a:1","b:2"}',
        "DatasetStates": STATES,
        "DatasetFractions": "['c:3'=0.5]",
        "DatasetAsOf": "['c:3'=1763690000]",
        "DataLocalityTruncated": "false",
        "DataLocalitySets": "['a:1'=1.0;'c:@l@@3'=0.25;s2bc4defghijklmnopqrs=0.0]",
        "DataLocalitySetsAsOf": "['c:@l@@3'=1763690000]",
        "DataLocalityOpen": "['c:@l@@3'=256;s2bc4defghijklmnopqrs=64;'a:b~3'=0]",
        "DataLocalityReadFrom": "['c:@l@@3'=\"RAL; no 2\"]",
        "DataLocalityBacklog": "32",
        "DataLocalityOpenUntil": str(NOW + 900),
        "DataLocalityAsOf": str(NOW),
        "DataLocalityGeneration": "1763690399",
        "DataLocalityVersion": "1",
    }
    merged = {**lines, **changes}
    return {name: merged[name] for name in (*lines, *(set(merged) - set(lines))) if merged[name] is not None}


def ad_text(**changes: str | None) -> str:
    lines = ad_lines(**changes)
    version = lines.pop("DataLocalityVersion", None)
    text = "".join(f"{name} = {literal}\n" for name, literal in lines.items())
    return text + (f"DataLocalityVersion = {version}\n" if version else "")


# ------------------------------------------------------------------------------------- the file itself


@pytest.mark.parametrize("script", [HOOK, WRAPPER], ids=["hook", "job wrapper"])
def test_script_of_a_worker_node_compiles_on_python_3_6(script):
    vermin = shutil.which("vermin", path=str(Path(sys.executable).parent)) or "vermin"
    words = [vermin, "-t=3.6-", "--no-tips", script]
    done = run_program(words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_first_lines_of_the_hook_start_an_isolated_python(tmp_path):
    copy = write_program(tmp_path / "hook", HOOK.read_text("utf-8"))
    (tmp_path / "http.py").write_text("raise SystemExit('a module of the user was imported')")
    environ = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path)}
    done = run_program([copy, "--version"], env=environ, check=True)
    assert done.stdout == f"hydrator hook {hook.VERSION}, contract 1\n"


def test_node_without_python_reports_it_and_does_not_end_the_glidein(tmp_path):
    empty = {"PATH": str(tmp_path)}
    if Path("/usr/libexec/platform-python").exists():
        pytest.skip("this machine has a platform-python")
    done = run_program(["/bin/sh", HOOK, "--site", "UK"], env=empty)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    done = run_program(["/bin/sh", HOOK, "/w/glidein_config"], env=empty)
    assert (done.returncode, done.stdout) == (0, "")


def big_ad() -> str:
    dids = [f"ska:obs_{n:06}" for n in range(2000)]
    return ad_text(
        AvailableDatasets="{" + ",".join(f'"{did}"' for did in dids) + "}",
        DatasetStates="[" + ";".join(f"'{did}'=\"AVAILABLE\"" for did in dids) + "]",
        DatasetAsOf="[]",
    )


COLLECTOR_23_9 = f"""AvailableDatasets = {{ "a:1","b:2" }}
DataLocalityAsOf = {NOW}
DataLocalityGeneration = 1763690399
DataLocalitySite = "UK"
DataLocalityTruncated = false
DataLocalityBacklog = 32
DataLocalityOpen = [ s2bc4defghijklmnopqrs = 64; 'c:@l@@3' = 256; 'a:b~3' = 0 ]
DataLocalityOpenUntil = {NOW + 900}
DataLocalityReadFrom = [ 'c:@l@@3' = "RAL; no 2" ]
DataLocalitySets = [ s2bc4defghijklmnopqrs = 0.0; 'c:@l@@3' = 2.500000000000000E-01; 'a:1' = 1.0 ]
DataLocalitySetsAsOf = [ 'c:@l@@3' = 1763690000 ]
DataLocalityVersion = 1
DatasetAsOf = [ 'c:3' = 1763690000 ]
DatasetFractions = [ 'c:3' = 5.000000000000000E-01; 'd:4' = 1E-05 ]
DatasetStates = [ 'a:1' = "AVAILABLE"; 'TRUE' = "STUCK"; plain = "STUCK"; 'b:2' = "AVAILABLE" ]
LastHeardFrom = 1763690401
MyType = "DataLocality"
Requirements = true
START = true

"""


# ------------------------------------------------------------------------------------ configuration


def settings(*argv: str, **environ: str) -> hook.HookSettings:
    return hook.HookSettings(list(argv), environ)


# --------------------------------------------------------------------------------------- whole runs


class Run:
    """Runs of the hook as a child process, with only the given environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cache = directory / "cache"
        self.environ = {"PATH": "/nonexistent", "HOME": str(directory / "home"), "TMPDIR": str(directory)}

    def __call__(
        self, *argv: str | Path, python: Sequence[str] = (sys.executable, "-I", "-S"), **environ: str
    ):
        options = [str(each) for each in argv]
        if "--cache-dir" not in options and "HYDRATOR_CACHE_DIR" not in environ and options[:1] != ["bare"]:
            environ["HYDRATOR_CACHE_DIR"] = str(self.cache)
        options = options[1:] if options[:1] == ["bare"] else options
        return run_program(
            [*python, HOOK, *options],
            env={**self.environ, "HYDRATOR_JITTER": "0", **environ},
            stdin=subprocess.DEVNULL,
            timeout=120,
        )


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path)


def printed(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The attributes that a run printed in whole blocks; the openings have a block of their own."""
    assert re.fullmatch(r"(\n(\w+ = .+\n)+- \w+( update:true)?\n)+", done.stdout), done
    texts = re.findall(r"\n\n?((?:\w+ = .+\n)+)- (\w+)", done.stdout)
    found = {tag: dict(bare(line).split(" = ", 1) for line in text.splitlines()) for text, tag in texts}
    trouble, openings, facts = found.pop("trouble"), found.pop("openings", {}), found.pop("locality")
    assert (trouble == {"DataLocalityError": "undefined"}) == (done.returncode == 0)
    assert openings.keys() <= set(hook.OPENINGS)
    assert not facts.keys() & set(hook.OPENINGS)
    return {**openings, **facts}


def ends(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The last lines of the blocks that a run printed."""
    return re.findall("(?m)^- (.*)", done.stdout)


def bare(line: str) -> str:
    """A printed line as the source has it: without the parentheses around a list or record."""
    return re.sub(r" = \((.*)\)$", r" = \1", line)


def failed(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """Check that the run printed only the trouble, and the same in one line on stderr."""
    output = done.stderr.removeprefix("hydrator hook: ").rstrip("\n")[: hook.MAX_TROUBLE]
    output = output.replace('"', "'").replace("\\", "/")
    assert done.stdout == f'\nDataLocalityError = "{output}"\n- trouble\n', done
    assert done.returncode == status
    assert done.stderr.startswith("hydrator hook: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def as_of(done: subprocess.CompletedProcess[str]) -> int:
    return int(printed(done)["DataLocalityAsOf"])


def wrote(path: Path, text: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ad_text() if text is None else text)
    return path


@pytest.mark.parametrize("form", ["UK.ad", "", "{site}.ad"])
def test_a_file_a_directory_and_a_pattern_are_sources(run, tmp_path, form):
    wrote(tmp_path / "ads" / "UK.ad")
    done = run("--site", "UK", "--file", tmp_path / "ads" / form)
    assert (done.returncode, done.stderr) == (0, "")
    assert printed(done) == {**ad_lines(), **ADDED}


def test_a_site_with_a_slash_stays_in_the_directory(run, tmp_path):
    wrote(tmp_path / "ads" / "%2E.%2Fx.ad".replace("%2E", "."), ad_text(DataLocalitySite='"../x"'))
    assert printed(run("--site", "../x", "--file", tmp_path / "ads"))["DataLocalitySite"] == '"../x"'


@pytest.mark.parametrize(("file", "why"), [("/no/ads", "No such file"), ("/dev/zero", "over 1048576 bytes")])
def test_missing_or_too_large_file_prints_only_the_trouble(run, file, why):
    failed(run("--site", "UK", "--file", file), 1, file, why)


def test_a_file_that_never_answers_ends_at_the_time_limit(run, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    failed(
        run("--site", "UK", "--file", tmp_path / "fifo", "--timeout", "0.2"),
        1,
        "no answer from",
        "within 0.2 s",
    )


def test_update_true_is_printed_when_the_generation_or_the_openings_are_new_to_this_startd(run, tmp_path):
    quiet = ["trouble", "openings", "locality"]
    facts = ["trouble", "openings", "locality update:true"]
    openings = ["trouble", "openings update:true", "locality"]
    steps: list[tuple[dict[str, str | None], list[str]]] = [
        ({}, facts),
        ({}, quiet),
        ({"DataLocalityAsOf": str(NOW + 60)}, quiet),
        ({"DataLocalityOpenUntil": str(NOW + 960)}, quiet),
        ({"DataLocalityOpen": "['c:@l@@3'=256]"}, openings),
        ({"DataLocalityOpen": "['c:@l@@3'=256]"}, quiet),
        ({"DataLocalityReadFrom": "['c:@l@@3'=\"AU\"]"}, openings),
        ({"DataLocalityBacklog": "33"}, openings),
        (dict(NO_OPENINGS), ["trouble", "locality"]),
        ({}, openings),
        ({"DataLocalityGeneration": "1763690500"}, facts),
        ({"DataLocalityGeneration": "1763690501", "DataLocalityOpen": "[]"}, facts),
        ({"DataLocalityGeneration": "1763690501", "DataLocalityOpen": "[]"}, quiet),
    ]
    path, shown = tmp_path / "UK.ad", []
    for changes, _ in steps:
        wrote(path, ad_text(**changes))
        shown.append(ends(run("--site", "UK", "--file", path)))
    assert shown == [expected for _, expected in steps]


def test_another_startd_gets_its_own_update(run, tmp_path):
    path = wrote(tmp_path / "UK.ad")
    words = [sys.executable, "-I", "-S", str(HOOK), "--site", "UK", "--file", str(path)]
    parent = f"import subprocess; subprocess.run({[*words, '--cache-dir', str(run.cache)]!r})"
    for _ in range(2):
        done = run_program([sys.executable, "-c", parent], check=True)
        assert done.stdout.endswith("- locality update:true\n")


def test_without_a_safe_directory_every_run_asks_for_an_update_and_says_why(run, tmp_path):
    path = wrote(tmp_path / "UK.ad")
    for _ in range(2):
        done = run("bare", "--site", "UK", "--file", path, HOME="/dev/null", TMPDIR="/dev/null")
        assert done.returncode == 0
        assert done.stdout.endswith("- locality update:true\n")
        assert "set --cache-dir" in done.stderr


@pytest.mark.parametrize("spoil", ["writable", "link", "file"])
def test_unsafe_cache_directory_is_rejected(run, tmp_path, spoil):
    cache = tmp_path / "unsafe"
    if spoil == "writable":
        cache.mkdir()
        cache.chmod(0o777)
    elif spoil == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        cache.symlink_to(tmp_path / "real")
    else:
        cache.write_text("")
    done = run("--site", "UK", "--file", wrote(tmp_path / "UK.ad"), "--cache-dir", cache)
    failed(done, 2, "--cache-dir", "cannot be used")


def test_default_cache_directory_is_private_whatever_the_umask(run, tmp_path):
    with umask(0):
        run("bare", "--site", "UK", "--file", wrote(tmp_path / "UK.ad"))
    made = tmp_path / "home" / ".cache" / "classad-hydrator" / "hook"
    assert {each.stat().st_mode & 0o777 for each in (made, *made.parents[:2])} == {0o700}
    assert [each.stat().st_mode & 0o777 for each in made.iterdir()] == [0o600]


# ---------------------------------------------------------------------------------- finding the site


def glidein_config(directory: Path, **values: str) -> str:
    path = directory / "glidein_config"
    path.write_text("".join(f"{key} {value}\n" for key, value in {"GLIDEIN_Site": "OLD", **values}.items()))
    return str(path)


def stand_in(directory: Path, name: str, script: str) -> Path:
    """An executable of that name; a stand-in for an HTCondor tool."""
    path = directory / "bin" / name
    path.parent.mkdir(exist_ok=True)
    write_program(path, "#!/bin/sh\n" + script)
    return path.parent


@pytest.mark.parametrize("name", ["GLIDEIN_Site", "_condor_GLIDEIN_Site", "_CONDOR_GLIDEIN_SITE"])
def test_site_is_found_in_the_environment(run, tmp_path, name):
    done = run("--file", wrote(tmp_path / "UK.ad"), **{name: '"UK"'})
    assert done.returncode == 0, done.stderr


def test_site_keys_are_tried_in_their_configurable_order(run, tmp_path):
    path = wrote(tmp_path / "UK.ad")
    places = {"GLIDEIN_Site": "AU", "GLIDEIN_ResourceName": "UK"}
    assert run("--file", path, **places).returncode == 0
    failed(run("--file", path, "--site-keys", "GLIDEIN_Site", **places), 1, "not of 'AU'")
    assert run("--file", path, "--site-keys", "Mine", Mine="UK").returncode == 0


def test_last_line_of_a_key_in_glidein_config_counts(run, tmp_path):
    path = glidein_config(tmp_path, HYDRATOR_FILE=str(wrote(tmp_path / "UK.ad")))
    with Path(path).open("a") as config:
        config.write("GLIDEIN_Site AU\nGLIDEIN_Site UK\n")
    done = run(path, "main", GLIDEIN_PERIODIC_SCRIPT="true")
    assert (done.returncode, printed(done)["DataLocalitySite"]) == (0, '"UK"')


def test_glidein_config_is_found_beside_condor_config(run, tmp_path):
    glidein_config(tmp_path, GLIDEIN_ResourceName="UK")
    done = run("--file", wrote(tmp_path / "UK.ad"), CONDOR_CONFIG=str(tmp_path / "condor_config"))
    assert done.returncode == 0, done.stderr


def test_condor_config_val_is_queried_last_for_the_site(run, tmp_path):
    tools = stand_in(tmp_path, "condor_config_val", 'echo "Not defined: $1" >&2; echo "\\"UK\\""; exit 1\n')
    done = run("--file", wrote(tmp_path / "UK.ad"), PATH=f"{tools}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr


def test_missing_site_is_a_configuration_error(run, tmp_path):
    tools = stand_in(tmp_path, "condor_config_val", "exit 1\n")
    failed(
        run("--file", wrote(tmp_path / "UK.ad"), PATH=f"{tools}:/bin"), 2, "no site", "GLIDEIN_ResourceName"
    )


@pytest.mark.parametrize("site", ['U"K', "U\\K", "UK\nSTART = true", "ÜK", "x" * 201, "U'K"])
def test_site_name_with_quotes_is_rejected(run, tmp_path, site):
    failed(run("--site", site, "--file", wrote(tmp_path / "UK.ad")), 2, "the site")


def test_a_glidein_is_never_ended_by_the_hook(run, tmp_path):
    path = glidein_config(tmp_path, HYDRATOR_FILE="/nowhere", GLIDEIN_ResourceName="UK")
    at_start = run(path, "main")
    assert (at_start.returncode, at_start.stdout) == (0, "")
    later = run(path, "main", GLIDEIN_PERIODIC_SCRIPT="true")
    assert later.returncode == 0
    assert later.stdout.startswith('\nDataLocalityError = "cannot read /nowhere')
    assert "/nowhere" in later.stderr
    wrong = run(glidein_config(tmp_path), "main")
    assert (wrong.returncode, wrong.stdout) == (0, "")
    assert "no source" in wrong.stderr


def test_glidein_has_its_cache_in_its_own_directory(run, tmp_path):
    path = glidein_config(tmp_path, HYDRATOR_FILE=str(wrote(tmp_path / "UK.ad")), GLIDEIN_ResourceName="UK")
    run("bare", path, "main", GLIDEIN_PERIODIC_SCRIPT="true")
    assert list((tmp_path / "hydrator-hook").iterdir())


# ----------------------------------------------------------------------------------------- collector


def test_a_stand_in_condor_status_is_asked_for_our_ad_only(run, tmp_path):
    (tmp_path / "out").write_text(COLLECTOR_23_9)
    tools = stand_in(
        tmp_path, "condor_status", f'printf "%s\\n" "$@" > {tmp_path}/asked; cat {tmp_path}/out\n'
    )
    done = run("--site", "UK", "--collector", "cm.example:9618", PATH=f"{tools}:/usr/bin:/bin")
    assert (done.returncode, printed(done)["DatasetFractions"]) == (0, "['c:3'=0.5;'d:4'=0.00001]")
    asked = (tmp_path / "asked").read_text().split("\n")
    assert "DataLocalityOpenUntil" in " ".join(asked)
    assert asked[:3] == ["-pool", "cm.example:9618", "-any"]
    assert 'MyType == "DataLocality" && DataLocalitySite =?= "UK"' in asked


def test_a_stand_in_condor_status_is_found_by_condor_dir(run, tmp_path):
    (tmp_path / "out").write_text(COLLECTOR_23_9)
    tools = stand_in(tmp_path, "condor_status", f"exec /bin/cat {tmp_path}/out\n")
    path = glidein_config(
        tmp_path, CONDOR_DIR=str(tools.parent), GLIDEIN_ResourceName="UK", HYDRATOR_COLLECTOR="cm"
    )
    assert printed(run(path, "main", GLIDEIN_PERIODIC_SCRIPT="true"))["DataLocalitySite"] == '"UK"'


def test_a_stand_in_condor_status_that_fails_leaves_the_last_answer(run, tmp_path):
    (tmp_path / "out").write_text(COLLECTOR_23_9)
    tools = stand_in(tmp_path, "condor_status", f"/bin/cat {tmp_path}/out\n")
    ask = ("--site", "UK", "--collector", "cm")
    first = run(*ask, PATH=str(tools))
    stand_in(tmp_path, "condor_status", "echo first; echo 'Error: communication error' >&2; exit 1\n")
    second = run(*ask, PATH=str(tools))
    assert (second.returncode, printed(second)) == (1, printed(first))
    assert "Error: communication error" in second.stderr


def test_a_stand_in_condor_status_that_hangs_is_killed(run, tmp_path):
    tools = stand_in(tmp_path, "condor_status", f"echo $$ > {tmp_path}/pid; exec /bin/sleep 600\n")
    failed(
        run("--site", "UK", "--collector", "cm", "--timeout", "0.5", PATH=str(tools)), 1, "took over 0.5 s"
    )
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not alive(pid), "the end of the tool")


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


# ---------------------------------------------------------------------------------------------- HTTP

Respond = Callable[[LoopbackRequest], None]


class Server(LoopbackServer):
    """A real HTTP server that answers as its *respond* says, and remembers what it was asked."""

    def __init__(self, certificate: Path | None = None) -> None:
        super().__init__()
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.respond: Respond = lambda _: None
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def reply(self, request: LoopbackRequest) -> None:
        self.asked.append((request.path, {name.lower(): text for name, text in request.headers.items()}))
        (tunnel if request.command == "CONNECT" else self.respond)(request)


def tunnel(handler: LoopbackRequest) -> None:
    host, port = handler.path.split(":")
    with socket.create_connection((host, int(port))) as far:
        handler.wfile.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        near = handler.connection
        back = threading.Thread(target=pump, args=(far, near), daemon=True)
        back.start()
        pump(near, far)
        back.join()
    handler.close_connection = True


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while piece := source.recv(65536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def ok(text: str | bytes | None = None, **fields: str) -> Respond:
    """200 with *text*; fields override or (empty) leave out headers."""
    body = (ad_text() if text is None else text) if not isinstance(text, bytes) else text
    data = body.encode() if isinstance(body, str) else body
    headers = {
        "ETag": '"1763690399"',
        "X-DataLocality-AsOf": str(NOW),
        "Content-Length": str(len(data)),
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    return raw(200, headers, data)


def raw(status: int, headers: dict[str, str], data: bytes = b"") -> Respond:
    def respond(handler: LoopbackRequest) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            if value:
                handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)
        handler.close_connection = True

    return respond


def ask(run: Run, server: Server, respond: Respond) -> subprocess.CompletedProcess[str]:
    """Run the hook of UK beside *server*, which answers as *respond* says from now on."""
    server.respond = respond
    return run("--site", "UK", "--url", server.url)


def test_hook_prints_an_ad_from_http(run, server):
    done = ask(run, server, ok())
    assert (done.returncode, done.stderr) == (0, "")
    assert printed(done) == {**ad_lines(), **ADDED}
    path, asked = server.asked[0]
    assert path == "/v1/sites/UK/ad"
    assert "authorization" not in asked
    assert asked["accept-encoding"] == "gzip"
    assert "if-none-match" not in asked


def test_answer_in_chunks_or_without_a_length_is_read(run, server):
    body = ad_text().encode()
    chunks = b"%x;note\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    answers = (ok(body, Content_Length=""), ok(chunks, Content_Length="", Transfer_Encoding="chunked"))
    for answer in answers:
        assert printed(ask(run, server, answer)) == {**ad_lines(), **ADDED}


def test_304_prints_the_local_copy_with_the_new_age(run, server):
    ask(run, server, ok())
    done = ask(run, server, raw(304, {"ETag": '"1763690399"', "X-DataLocality-AsOf": str(NOW + 300)}))
    assert server.asked[1][1]["if-none-match"] == '"1763690399"'
    assert (done.returncode, as_of(done), printed(done)["DatasetStates"]) == (0, NOW + 300, STATES)


def test_old_304_does_not_make_the_ad_older(run, server):
    ask(run, server, ok(X_DataLocality_AsOf=str(NOW + 300)))
    assert as_of(ask(run, server, raw(304, {"X-DataLocality-AsOf": str(NOW)}))) == NOW + 300


def test_unrequested_304_is_an_error(run, server):
    failed(ask(run, server, raw(304, {"X-DataLocality-AsOf": str(NOW)})), 1, "304")


def test_unreachable_server_leaves_the_local_copy_with_its_old_as_of(run, server):
    ask(run, server, ok())
    ask(run, server, raw(304, {"X-DataLocality-AsOf": str(NOW + 300)}))
    url = server.url
    server.socket.close()
    for _ in range(2):
        done = run("--site", "UK", "--url", url)
        assert (done.returncode, as_of(done)) == (1, NOW + 300)
        assert done.stderr.count("\n") == 1
        assert "Connection refused" in done.stderr
        assert "printed the last answer of the source" in done.stderr


def test_local_copy_is_not_shared_between_servers_or_sites(run, server):
    ask(run, server, ok())
    failed(run("--site", "AU", "--url", server.url), 1, "the ad of site 'UK'")
    failed(run("--site", "UK", "--url", "http://127.0.0.1:1"), 1, "127.0.0.1:1")


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_server_error_leaves_the_last_answer(run, server, status):
    ask(run, server, ok())
    done = ask(run, server, raw(status, {}))
    assert (done.returncode, as_of(done)) == (1, NOW)
    assert f"answers {status}" in done.stderr


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "--token-file"), (403, "--token-file"), (404, "--site"), (302, "redirects"), (407, "login")],
)
def test_rejection_by_the_server_discards_the_local_copy(run, server, status, words):
    ask(run, server, ok())
    failed(ask(run, server, raw(status, {"Location": "http://elsewhere/"})), 1, str(status), words)


def test_token_is_sent_and_never_follows_a_redirect(run, server, tmp_path):
    (tmp_path / "token").write_text("secret\n")
    with Server() as other:
        server.respond = raw(307, {"Location": other.url + "/v1/sites/UK/ad"})
        done = run("--site", "UK", "--url", server.url, "--token-file", tmp_path / "token")
        failed(done, 1, "redirects", other.url)
        assert server.asked[0][1]["authorization"] == "Bearer secret"
        assert other.asked == []


GARBLED = {
    "another site": (ok(ad_text(DataLocalitySite='"AU"')), "the ad of site 'AU'"),
    "a hostile line": (ok("START = true\n" + ad_text()), "START = true"),
    "a torn text": (ok(ad_text()[:200]), "is not valid"),
    "too few bytes": (ok(Content_Length="99999"), "truncated"),
    "an endless body": (ok(b"x" * (1 << 21), Content_Length=""), "over 1048576"),
    "torn gzip": (ok(gzip.compress(ad_text().encode())[:-20], Content_Encoding="gzip"), "truncated gzip"),
    "a gzip bomb": (ok(gzip.compress(b"a" * (1 << 24)), Content_Encoding="gzip"), "over 1048576"),
    "an age that is none": (ok(X_DataLocality_AsOf="soon"), "not a whole number"),
    "an age in the future": (ok(X_DataLocality_AsOf="99999999999"), "in the future"),
    "chunks without a length": (ok(Content_Length="", Transfer_Encoding="chunked"), "is truncated"),
    "a huge chunk": (ok(b"ffffffff\r\nx", Content_Length="", Transfer_Encoding="chunked"), "is truncated"),
    "nested records": (ok(b"DatasetStates = " + b"['a:1'=" * 900 + b"]" * 900 + b"\n"), "in DatasetStates"),
    "gzip twice": (
        ok(gzip.compress(gzip.compress(ad_text().encode())), Content_Encoding="gzip, gzip"),
        "is not ASCII",
    ),
    "brotli": (ok(Content_Encoding="br"), "sends gzip that cannot be read"),
    "another contract": (
        ok(ad_text(DataLocalityVersion="2", DataLocalityNew="[]"), ETag='"9"'),
        "the ad has contract version 2, this hook reads 1",
    ),
    "300 header fields": (raw(200, {f"X-{number}": "y" for number in range(300)}), "more than 100 headers"),
}


@pytest.mark.parametrize("kind", GARBLED)
def test_garbled_answer_leaves_the_last_answer(run, server, kind):
    respond, words = GARBLED[kind]
    failed(ask(run, server, respond), 1, words)
    ask(run, server, ok())
    done = ask(run, server, respond)
    assert (done.returncode, as_of(done), printed(done)["DatasetStates"]) == (1, NOW, STATES)
    assert words in done.stderr


@contextmanager
def dripping(pieces: bytes) -> Iterator[str]:
    """A server that accepts and then sends one byte every 50 ms."""
    ended = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        near, _ = listener.accept()
        with near:
            for byte in pieces:
                if ended.wait(0.05):
                    return
                try:
                    near.sendall(bytes([byte]))
                except OSError:
                    return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    ended.set()
    thread.join()
    listener.close()


@pytest.mark.parametrize(
    "pieces", [b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100, b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1000]
)
def test_slow_answer_ends_at_the_time_limit(run, pieces):
    with dripping(pieces) as url:
        started = time.monotonic()
        failed(run("--site", "UK", "--url", url, "--timeout", "0.5"), 1, "within 0.5 s", url)
        assert time.monotonic() - started < 60


def test_answer_that_is_not_http_is_reported(run):
    with dripping(b"SSH\n") as url:
        failed(run("--site", "UK", "--url", url), 1, "does not answer in HTTP")


def issued(folder: Path, host: str) -> Path:
    """A file with the certificate of *host*, its key and its authority."""
    authority = trustme.CA()
    pair = authority.issue_cert(host).private_key_and_cert_chain_pem
    (folder / "all.pem").write_bytes(pair.bytes() + authority.cert_pem.bytes())
    return folder / "all.pem"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    return issued(tmp_path_factory.mktemp("tls"), "127.0.0.1")


@pytest.fixture
def secure(certificate) -> Iterator[Server]:
    with Server(certificate) as running:
        yield running


def test_https_checks_the_certificate(run, secure, certificate):
    secure.respond = ok()
    failed(run("--site", "UK", "--url", secure.url), 1, "certificate")
    assert as_of(run("--site", "UK", "--url", secure.url, "--ca-file", certificate)) == NOW


def test_proxy_gets_the_whole_url(run, server):
    server.respond = ok()
    done = run("--site", "UK", "--url", "http://far.example:8080/h", http_proxy=server.url)
    assert (done.returncode, server.asked[0][0]) == (0, "http://far.example:8080/h/v1/sites/UK/ad")
    assert server.asked[0][1]["host"] == "far.example:8080"


def test_https_goes_through_a_proxy_by_connect(run, server, secure, certificate):
    secure.respond = ok()
    done = run("--site", "UK", "--url", secure.url, "--ca-file", certificate, https_proxy=server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert server.asked[0][0] == secure.url.removeprefix("https://")


def test_dead_proxy_is_named_in_the_trouble(run):
    done = run("--site", "UK", "--url", "http://far.example", http_proxy="http://127.0.0.1:1")
    failed(done, 1, "through proxy 127.0.0.1:1", "Connection refused")


# ------------------------------------------------------------------------------ towards the startd


def test_run_that_gets_sigterm_finishes_its_output(run, tmp_path):
    """KILL = True: SIGTERM, SIGKILL a second later; seen on 25.14.1 as half a line in its log."""
    path = wrote(tmp_path / "UK.ad", big_ad())
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", HOOK, "--site", "UK", "--file", path, "--cache-dir", run.cache],
        stdout=subprocess.PIPE,
        env=run.environ,
    )
    assert child.stdout
    wait_for(lambda: hook.unread_byte_count(child.stdout.fileno()) > 50_000, "output in the pipe")
    child.terminate()
    got = child.stdout.read()
    child.stdout.close()
    assert child.wait(120) == 0
    assert got.endswith(b"- locality update:true\n")


def test_closed_output_gives_no_traceback(run, tmp_path):
    path = wrote(tmp_path / "UK.ad", big_ad())
    near, far = os.pipe()
    os.close(near)
    done = subprocess.run(
        [sys.executable, "-I", "-S", HOOK, "--site", "UK", "--file", path, "--cache-dir", run.cache],
        stdout=far,
        stderr=subprocess.PIPE,
        text=True,
        env=run.environ,
        check=False,
    )
    os.close(far)
    assert (done.returncode, done.stderr) == (1, "hydrator hook: the startd closed the output: Broken pipe\n")
    assert not list(run.cache.glob("startd-*"))  # it is not stored as printed


def test_help_names_every_option_and_goes_to_stdout(run):
    done = run("--help")
    assert done.returncode == 0
    for option in hook.OPTIONS:
        assert f"--{option} " in done.stdout


@pytest.mark.parametrize("python", pythons())
def test_hook_runs_on_each_python_of_this_machine(run, server, tmp_path, python):
    server.respond = ok()
    assert as_of(run("--site", "UK", "--url", server.url, python=[python, "-I", "-S"])) == NOW
    assert as_of(run("--site", "UK", "--file", wrote(tmp_path / "UK.ad"), python=[python, "-I", "-S"])) == NOW


# ------------------------------------------------------------------- whatever happens, copy and trouble


@pytest.fixture(scope="module")
def foreign_certificate(tmp_path_factory) -> Path:
    return issued(tmp_path_factory.mktemp("foreign"), "other.example")


@pytest.mark.parametrize("python", pythons())
def test_a_certificate_of_another_host_prints_the_copy_and_the_trouble(
    run, secure, certificate, foreign_certificate, python
):
    """Python 3.6 raises ssl.CertificateError there, which is not an OSError."""
    clean = [python, "-I", "-S"]
    secure.respond = ok()
    assert as_of(run("--site", "UK", "--url", secure.url, "--ca-file", certificate, python=clean)) == NOW
    with Server(foreign_certificate) as other:
        ask = ("--site", "UK", "--url", other.url, "--ca-file", foreign_certificate)
        failed(run(*ask, python=clean), 1, "no answer from", "127.0.0.1")
        (copy,) = run.cache.glob("ad-*")
        name = hook.cache_file_name(settings("--url", other.url), "UK")
        copy.with_name(name).write_text(copy.read_text().replace(secure.url, other.url))
        copy.with_name(name).chmod(0o600)
        done = run(*ask, python=clean)
    assert (done.returncode, as_of(done), printed(done)["DatasetStates"]) == (1, NOW, STATES)
    assert "printed the last answer of the source" in done.stderr


@pytest.mark.parametrize("trouble", [MemoryError, RecursionError, KeyboardInterrupt, SystemExit])
def test_nothing_that_is_raised_while_asking_passes(run, server, trouble):
    ask(run, server, ok())
    found = settings("--url", server.url, "--jitter", "0", "--cache-dir", str(run.cache))

    class Raising:
        safe = False

        @property
        def address(self) -> str:
            raise trouble

    found.proxy = Raising()  # type: ignore[assignment]
    copies, wrong = hook.ask_or_use_cache(found, "UK", hook.find_cache_directory(found))
    assert copies.ad["DataLocalityAsOf"] == NOW
    assert trouble.__name__ in wrong


@pytest.mark.parametrize("spoil", ["folder", "fifo", "link", "others", "binary", "line"])
def test_unreadable_local_copy_is_ignored(run, server, tmp_path, spoil):
    ask(run, server, ok())
    (copy,) = run.cache.glob("ad-*")
    text = copy.read_bytes()
    copy.unlink()
    if spoil == "folder":
        copy.mkdir()
    elif spoil == "fifo":
        os.mkfifo(copy)
    elif spoil == "link":
        (tmp_path / "elsewhere").write_bytes(text)
        copy.symlink_to(tmp_path / "elsewhere")
    else:
        texts = {"others": text, "binary": bytes(range(256)) * 9, "line": text[:-4] + b"START = true\n"}
        copy.write_bytes(texts[spoil])
        copy.chmod(0o666 if spoil == "others" else 0o600)
    failed(ask(run, server, raw(503, {})), 1, "503")


@pytest.mark.parametrize("spoil", ["link", "file", "others", "dangling"])
def test_occupied_name_in_tmp_does_not_prevent_a_local_copy(run, server, tmp_path, spoil):
    """Without a home the folder is in /tmp, where another user may take any name that is not random."""
    spare = tmp_path / "tmp"
    spare.mkdir()
    requests = spare / f"hydrator-hook-{os.geteuid()}-0"
    if spoil == "link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        requests.symlink_to(tmp_path / "theirs")
    elif spoil == "dangling":
        requests.symlink_to(tmp_path / "nowhere")
    elif spoil == "file":
        requests.write_text("")
    else:
        requests.mkdir()
        requests.chmod(0o777)
    ask = ("bare", "--site", "UK", "--url", server.url)
    server.respond = ok()
    first = run(*ask, HOME="/dev/null", TMPDIR=str(spare))
    assert (first.returncode, first.stderr) == (0, "")
    server.respond = raw(503, {})
    done = run(*ask, HOME="/dev/null", TMPDIR=str(spare))
    assert (done.returncode, as_of(done)) == (1, NOW)
    made = [each for each in spare.iterdir() if each != requests]
    assert [each.stat().st_mode & 0o777 for each in made] == [0o700]
    assert not list((tmp_path / "theirs").iterdir() if spoil == "link" else [])


def test_non_utf8_arguments_and_environment_are_one_sentence(run, tmp_path):
    path = wrote(tmp_path / "UK.ad")
    odd = b"\xff\xfe\x80".decode("utf-8", "surrogateescape")
    done = run("--site", "UK", "--file", path, ODD=odd, GLIDEIN_Site=odd, TMPDIR=odd)
    assert (done.returncode, done.stderr) == (0, "")
    failed(run("--site", odd, "--file", path), 2, "the site")
    failed(run("--site", "UK", "--file", odd), 1, "cannot read")
    failed(run("--site", "UK", "--url", f"https://{odd}"), 2, "cannot be used")


def test_a_hook_comes_back_by_itself_after_a_forged_generation(run, server):
    ask(run, server, ok())
    forged = ask(run, server, ok(ad_text(DataLocalityGeneration="999999999999999"), ETag='"999999999999999"'))
    assert (forged.returncode, printed(forged)["DataLocalityGeneration"]) == (1, "1763690399")
    done = ask(run, server, ok(ad_text(DataLocalityGeneration="1763690500"), ETag='"1763690500"'))
    assert (done.returncode, printed(done)["DataLocalityGeneration"]) == (0, "1763690500")
    assert done.stdout.endswith("- locality update:true\n")


def test_local_copy_with_a_forged_generation_is_ignored(run, server):
    ask(run, server, ok())
    for copy in run.cache.glob("ad-*"):
        copy.write_text(copy.read_text().replace("1763690399", "99999999999999"))
    done = run("--site", "UK", "--url", server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "if-none-match" not in server.asked[-1][1]
