"""Job wrapper: whole runs as HTCondor starts it."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from hydrator.reconcile import misses
from hydrator.submit import job_wrapper as job_start
from hydrator.submit.job_wrapper import Dataset, WrapperError
from testbed.files import write_program
from testbed.patience import wait_for
from testbed.processes import is_running, run_program
from tests.command_line import run_hydrator
from tests.tables import MEASUREMENT_SET, write

pytestmark = pytest.mark.outside

FILE = Path(job_start.__file__)
PARSET = b"[global]\ninput_ms = {input_ms}\ndir_working = /scratch\n[cluster]\nmax_cores = {cores}\n"


@pytest.fixture
def node(tmp_path) -> "Iterator[Node]":
    node = Node(tmp_path)
    yield node
    node.close()


class Node:
    """A worker node at site UK with a scratch folder and a storage area."""

    def __init__(self, folder: Path) -> None:
        self.servers: list[socket.socket] = []
        self.scratch = folder / "scratch"
        self.storage = folder / "uk"
        for each in (self.scratch, self.storage):
            each.mkdir()
        self.machine = folder / "machine.ad"
        self.machine.write_text('Cpus = 1\nMemory = 2048\nDataLocalitySite = "UK"\nGLIDEIN_Site = "other"\n')
        self.job = folder / "job.ad"
        self.job.write_text("ClusterId = 1\n")
        self.environment = {
            "PATH": os.environ["PATH"],
            "_CONDOR_SCRATCH_DIR": str(self.scratch),
            "_CONDOR_MACHINE_AD": str(self.machine),
            "_CONDOR_JOB_AD": str(self.job),
        }

    def takes(self, *dids: str, stage_in: str | None = None, **more: object) -> None:
        """Write hydrator-paths.json for *dids*, each a name in the storage area of UK."""
        body = {
            "version": 1,
            "datasets": [{"did": did, "name": f"/as/was/{did.partition(':')[2]}"} for did in dids],
            "sites": {"UK": {did: str(self.storage / did.partition(":")[2]) for did in dids}},
            "stage_in": stage_in,
            **more,
        }
        (self.scratch / "hydrator-paths.json").write_text(json.dumps(body))

    def holds(self, name: str, content: str = "") -> Path:
        """A measurement set, or a folder with *content* in a file of another program."""
        files = {"table.dat": content.encode()} if content else MEASUREMENT_SET
        return write(self.storage / name, files)

    def takes_what_it_holds(self) -> None:
        self.takes("lofar:L1.ms")
        self.holds("L1.ms")

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.start([self.wrapper(), *words], env={**self.environment, **environment})

    def missed(self) -> str:
        """Run a job that ends to run elsewhere; return its stderr."""
        done = self.run("true")
        assert (done.returncode, done.stdout) == (85, "")
        return done.stderr

    def start(
        self, words: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run_program(words, cwd=cwd or self.scratch, env=env or self.environment, timeout=120)

    def wrapper(self) -> Path:
        return write_program(self.scratch / "condor_exec.exe", FILE.read_text("utf-8"))

    def chirp(self, answer: str = "0") -> dict[str, str]:
        """Serve Chirp as HTCondor's starter does; return the attributes that the job will have set."""
        attributes: dict[str, str] = {}
        server = socket.create_server(("127.0.0.1", 0))
        self.servers.append(server)
        (self.scratch / ".chirp.config").write_text(f"127.0.0.1 {server.getsockname()[1]} secret\n")
        threading.Thread(target=serve_chirp, args=(server, answer, attributes), daemon=True).start()
        return attributes

    def close(self) -> None:
        for server in self.servers:
            server.shutdown(socket.SHUT_RDWR)
            server.close()


def serve_chirp(server: socket.socket, answer: str, attributes: dict[str, str]) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rw") as stream:
                assert stream.readline() == "cookie secret\n"
                stream.write("0\n")
                stream.flush()
                for line in stream:
                    words = re.split(r"(?<!\\) ", line.rstrip("\n"))
                    verb, name, value = (re.sub(r"\\(.)", r"\1", word) for word in words)
                    assert verb == "set_job_attr_delayed"
                    attributes[name] = value
                    stream.write(f"{answer}\n")
                    stream.flush()


# ------------------------------------------------------------------------------------- the file itself


def test_submit_wrapper_command_prints_the_wrapper():
    assert run_hydrator("submit", "wrapper").stdout == FILE.read_bytes()


# ------------------------------------------------------------------------------- what the command sees


def test_command_gets_the_paths_of_its_data_as_variables(node):
    node.takes("lofar:L1.ms", "lofar:L2.ms")
    node.holds("L1.ms", "one")
    node.holds("L2.ms", "two")
    script = 'cat "$INPUT_1/table.dat" "$INPUT_L2_ms/table.dat"; echo " at $HYDRATOR_SITE"'
    done = node.run("--", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "onetwo at UK\n", "")


def test_arguments_that_name_a_dataset_become_its_path(node):
    node.takes("lofar:L1.ms")
    path = str(node.holds("L1.ms"))
    words = ("lofar:L1.ms", "/as/was/L1.ms", "$INPUT_1", "--in=${INPUT_1}", "xlofar:L1.ms", "$INPUT_9")
    done = node.run("printf", "%s\n", *words)
    assert done.stdout.splitlines() == [path, path, path, f"--in={path}", "xlofar:L1.ms", "$INPUT_9"]


@pytest.mark.parametrize("command", [("cat", "run.parset"), ("sh", "-c", "cat run.parset")])
def test_parset_has_this_sites_paths_however_the_command_names_it(node, command):
    node.takes("lofar:L1.ms", "lofar:L2.ms")
    one, two = node.holds("L1.ms"), node.holds("L2.ms")
    (node.scratch / "run.parset").write_bytes(PARSET)
    done = node.run("--parset", "run.parset", "--", *command)
    text = PARSET.replace(b"{input_ms}", f'["{one}", "{two}"]'.encode())
    assert done.stdout.encode() == text.replace(b"{cores}", b"1")


@pytest.mark.parametrize("is_link", [False, True])
def test_parset_outside_of_the_scratch_folder_is_unchanged_and_the_command_gets_a_copy(
    node, tmp_path, is_link
):
    node.takes_what_it_holds()
    shared = tmp_path / "shared.parset"
    shared.write_bytes(PARSET)
    name = str(shared)
    if is_link:
        (node.scratch / "run.parset").symlink_to(shared)
        name = "run.parset"
    done = node.run("--parset", name, "--", "cat", name)
    assert "{input_ms}" not in done.stdout
    assert "input_ms" in done.stdout
    assert shared.read_bytes() == PARSET


def test_rapthor_run_has_its_own_home_and_no_services_of_another_machine(node):
    node.takes_what_it_holds()
    (node.scratch / "run.parset").write_bytes(PARSET)
    others = {
        "HOME": "/nowhere",
        "DASK_SCHEDULER": "tcp://login:8786",
        "PREFECT_API_URL": "http://login:4200/api",
    }
    done = node.run(
        "--parset", "run.parset", "--", "env", **others, PREFECT_API_KEY="secret", OMP_NUM_THREADS="1"
    )
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
    home = Path(seen["HOME"])
    assert (home.parents[1], home.is_dir()) == (node.scratch, True)
    assert (Path(seen["PREFECT_HOME"]).parent, seen["OMP_NUM_THREADS"]) == (home, "1")
    assert not ({*others, "PREFECT_API_KEY"} - {"HOME"}) & seen.keys()
    assert "DASK_SCHEDULER, PREFECT_API_KEY, PREFECT_API_URL" in done.stderr
    assert "secret" not in done.stderr
    assert node.run("--", "env", **others).stdout.count("DASK_SCHEDULER=tcp://login:8786") == 1


def operations(node: Node) -> dict[str, list[str]]:
    """The operations in the working folder, each with its files."""
    folder = node.scratch / "rapthor" / "pipelines"
    listed = folder.iterdir() if folder.exists() else ()
    return {each.name: sorted(file.name for file in each.iterdir()) for each in listed}


def fill(node: Node, **files: str) -> None:
    """Put files into the folders of operations."""
    for name, listed in files.items():
        folder = node.scratch / "rapthor" / "pipelines" / name
        folder.mkdir(parents=True)
        for file in listed.split():
            (folder / file).write_text(file)


def test_evicted_job_continues_after_its_finished_operations(node):
    node.takes_what_it_holds()
    fill(node, calibrate_1=".done solutions.h5", image_1="jobstore")
    done = node.run("--keep", "rapthor", "--", "sh", "-c", "ls -A rapthor/pipelines/*; exit 7")
    assert (done.returncode, done.stdout) == (7, ".done\nsolutions.h5\n")
    assert done.stderr == "hydrator: the job was evicted before: Rapthor continues after calibrate_1\n"
    assert operations(node) == {}  # its output is the rest of the folder


def test_eviction_removes_unfinished_operations(node):
    node.takes_what_it_holds()
    fill(node, calibrate_1=".done", image_1="jobstore")
    script = (
        "mkdir rapthor/pipelines/image_2; trap 'echo ends; exit 3' TERM;"
        " echo ready; while :; do sleep 0.1; done"
    )
    words = [node.wrapper(), "--keep", "rapthor", "--", "sh", "-c", script]
    with subprocess.Popen(
        words, cwd=node.scratch, env=node.environment, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout
        assert job.stdout.readline() == "ready\n"
        job.send_signal(signal.SIGTERM)
        assert job.stdout.read() == "ends\n"
        assert job.wait() == 3
    assert operations(node) == {"calibrate_1": [".done"]}


@pytest.mark.parametrize("keep", [(), ("--keep", "rapthor")])
@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("sh", "-c", "kill -SEGV $$"), -signal.SIGSEGV, ""),
        (("nowhere",), 127, "hydrator: cannot start nowhere: No such file or directory\n"),
    ],
)
def test_job_ends_with_the_status_of_its_command(node, keep, words, status, told):
    node.takes_what_it_holds()
    done = node.run(*keep, "--", *words)
    assert (done.returncode, done.stderr) == (status, told)


def test_command_gets_its_arguments_and_the_job_its_status(node):
    node.takes_what_it_holds()
    done = node.run("sh", "-c", 'echo "$#" "$1"; exit 37', "sh", "two words", "--site")
    assert (done.returncode, done.stdout) == (37, "2 two words\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGKILL])
def test_command_gets_signals_and_the_job_ends_by_the_same_signal(node, number):
    node.takes_what_it_holds()
    ready = node.scratch / "ready"
    with subprocess.Popen(
        [node.wrapper(), "sh", "-c", f": > {ready}; exec sleep 600"], cwd=node.scratch, env=node.environment
    ) as running:
        wait_for(ready.exists, "the command to run")
        running.send_signal(number)
        assert running.wait(120) == -number


@pytest.mark.parametrize("environment", [{}, {"LC_CTYPE": "C"}])
def test_command_gets_default_sigpipe_and_the_jobs_locale(node, environment):
    node.takes_what_it_holds()
    script = 'grep SigIgn /proc/self/status; echo "${LC_CTYPE-unset}"; env | grep -c HYDRATOR_'
    ignored, locale, ours = node.run("sh", "-c", script, **environment).stdout.split()[1:]
    assert int(ignored, 16) & (1 << (signal.SIGPIPE - 1)) == 0
    assert (locale, ours) == (environment.get("LC_CTYPE", "unset"), "1")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "no command"),
        (("--nonsense", "x"), "--nonsense"),
        (("--parset",), "--parset requires argument"),
        (("--paths", "nowhere.json", "true"), "cannot read nowhere.json"),
        (("--parset", "nowhere.parset", "true"), "cannot fill in the parset"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(node, words, sentence):
    node.takes_what_it_holds()
    done = node.run(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def paths_text(**more: object) -> str:
    return json.dumps({"version": 1, "datasets": [{"did": "lofar:L1.ms"}], "sites": {}, **more})


@pytest.mark.parametrize(
    ("status", "text"),
    [
        *((2, text) for text in ("", "[]", "{}", "\x00", paths_text(version=2), paths_text(datasets=[]))),
        *(
            (2, paths_text(datasets=[{"did": did, "name": "x"}]))
            for did in ("lofar:a/../b", "lofar:$(touch x)", "-rf:x", "lofar")
        ),
        (85, paths_text(sites={"UK": {"lofar:L1.ms": "/data/\ud800"}})),
        (85, paths_text(sites={"UK": {"lofar:L1.ms": 7}})),
        (85, paths_text(sites={"UK": []})),
        (85, "[" * 200_000),
    ],
)
def test_invalid_paths_file_is_one_sentence(node, status, text):
    (node.scratch / "hydrator-paths.json").write_text(text)
    done = node.run("true")
    assert (done.returncode, done.stderr.count("\n")) == (status, 1)
    assert done.stderr.startswith("hydrator: ")
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------------------------------- what misses


def test_missing_dataset_ends_with_85_and_is_reported_in_the_job_ad(node):
    node.takes("lofar:L1.ms", "lofar:L2.ms")
    node.holds("L2.ms")
    attributes = node.chirp()
    stderr = node.missed()
    assert stderr.count("\n") == 1
    assert "not readable at UK: lofar:L1.ms" in stderr
    assert "could not be written" not in stderr
    assert attributes["ChirpDataLocalityMissed"] == '{"UK"}'
    until = int(attributes["ChirpDataLocalityMissedUntil"])
    assert until % 1800 == 0
    assert 3590 < until - time.time() <= 5400
    (miss,) = misses.parse_misses({misses.MISSES_ATTRIBUTE: [attributes["ChirpDataLocalityMisses"][2:-2]]})
    assert (miss.site, miss.did) == ("UK", "lofar:L1.ms")


def test_report_keeps_earlier_misses_in_the_job_ad(node):
    node.takes("lofar:L1.ms")
    node.job.write_text(
        'ChirpDataLocalityMissed = { "NL","UK" }\nChirpDataLocalityMisses = { "12 lofar:L1.ms NL" }\n'
    )
    attributes = node.chirp()
    node.run("true")
    assert attributes["ChirpDataLocalityMissed"] == '{"UK","NL"}'
    assert attributes["ChirpDataLocalityMisses"].endswith('","12 lofar:L1.ms NL"}')


def test_empty_folder_and_dangling_link_are_misses(node):
    node.takes("lofar:L1.ms")
    path = node.storage / "L1.ms"
    path.mkdir()
    assert "has no files" in node.run("true").stderr
    path.rmdir()
    path.symlink_to(node.storage / "gone")
    assert node.run("true").returncode == 85


def test_path_with_non_ascii_letters_is_found_in_any_locale(node):
    node.takes("lofar:L1.ms", sites={"UK": {"lofar:L1.ms": str(node.storage / "é.ms")}})
    node.holds("é.ms")
    (node.scratch / "run.parset").write_bytes(PARSET)
    words = ("--parset", "run.parset", "sh", "-c", 'cat "$INPUT_1/table.f0" "$0"', "run.parset")
    done = node.run(*words, LC_ALL="C")
    assert done.stdout.startswith("x[global]")
    assert '/é.ms"]' in done.stdout


@pytest.mark.parametrize(
    ("sites", "told"),
    [
        ({"UK": {"lofar:L1.ms": "/data/\0"}}, "embedded null byte"),
        ({}, "hydrator-paths.json has no path for this dataset"),
    ],
)
def test_dataset_without_a_usable_path_is_a_miss(node, sites, told):
    node.takes("lofar:L1.ms", sites=sites)
    stderr = node.missed()
    assert told in stderr
    assert stderr.count("\n") == 1


def test_file_server_without_an_answer_is_a_miss(tmp_path):
    os.mkfifo(tmp_path / "never")
    (tmp_path / "file").write_text("x")
    one = Dataset(1, {"did": "lofar:L1"})
    looked = job_start.check_all([(one, str(tmp_path / "file")), (one, str(tmp_path / "never"))], 0.5)
    assert looked == [["", [str(tmp_path / "file")]], ["no answer within 0.5 s", []]]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(None, "No such file or directory"), ("-1", "HTCondor refuses"), ("", "ValueError")],
)
def test_miss_that_cannot_be_written_ends_with_85_and_says_so(node, answer, reason):
    """Case S22 of cases/submit.md."""
    node.takes("lofar:L1.ms")
    if answer is not None:
        node.chirp(answer)
    done = node.run("true")
    assert (done.returncode, done.stderr.count("\n")) == (85, 1)
    assert "not readable at UK: lofar:L1.ms" in done.stderr
    assert "the miss could not be written into the job's ad" in done.stderr
    assert reason in done.stderr


def test_site_with_a_space_arrives_in_the_job_ad(node):
    node.takes("lofar:L1.ms", sites={})
    attributes = node.chirp()
    node.run("--site", "U K\\", "true")
    assert attributes["ChirpDataLocalityMissed"] == '{"U K"}'


def test_missing_output_files_become_sockets_that_file_transfer_skips(node):
    node.takes("lofar:L1.ms")
    (node.scratch / "there").write_text("kept")
    long = "x" * 200
    node.job.write_text(f'TransferOutput = "there,gone.txt, sub/deep,{long},folder/"\n')
    assert node.run("true").returncode == 85
    for name in ("gone.txt", "sub/deep", long):
        assert stat.S_ISSOCK((node.scratch / name).stat().st_mode)
    assert (node.scratch / "there").read_text() == "kept"
    assert list((node.scratch / "folder").iterdir()) == []


# ------------------------------------------------------------------------------------------- fetching


def test_unreadable_dataset_is_fetched(node):
    node.takes("lofar:L1.ms", "lofar:L2.ms", stage_in="sh -c 'mkdir $0/x; echo $1 > $0/x/f' {path} {did}")
    here = node.holds("L2.ms")
    done = node.run("sh", "-c", 'cat $INPUT_1/f; echo "$INPUT_2"')
    assert done.stdout == f"lofar:L1.ms\n{here}\n"


def test_fetched_dataset_is_reported_and_is_a_miss_if_advertised(node):
    node.takes("lofar:L1.ms", "lofar:L2.ms", stage_in="sh -c 'echo x > $0/f' {path}")
    node.machine.write_text(
        'DataLocalitySite = "UK"\n'
        "DatasetStates = ([ 'lofar:L1.ms' = \"AVAILABLE\"; 'lofar:L2.ms' = \"STAGING\" ])\n"
    )
    node.job.write_text('ChirpDataLocalityFetched = { "12 lofar:L1.ms NL" }\n')
    attributes = node.chirp()
    assert node.run("true").returncode == 0
    assert set(attributes) == {"ChirpDataLocalityFetched", "ChirpDataLocalityMisses"}
    assert re.fullmatch(
        r'\{"\d+ lofar:L1.ms,lofar:L2.ms UK","12 lofar:L1.ms NL"\}', attributes["ChirpDataLocalityFetched"]
    )
    (miss,) = misses.parse_misses({misses.MISSES_ATTRIBUTE: [attributes["ChirpDataLocalityMisses"][2:-2]]})
    assert (miss.site, miss.did) == ("UK", "lofar:L1.ms")


@pytest.mark.parametrize(
    ("command", "below"),
    [
        ("cp {src} {path}/L1.ms", "1/L1.ms/L1.ms"),
        ("cp {src} {path}/other", "1/L1.ms/other"),
        ("sh -c 'cp $0 $1/a; cp $0 $1/b' {src} {path}", "1/L1.ms"),
    ],
)
def test_result_of_the_stage_in_command_is_found(node, command, below):
    source = node.storage / "source"
    source.write_text("x")
    node.takes("lofar:L1.ms", stage_in=command.replace("{src}", str(source)))
    done = node.run("sh", "-c", 'echo "$INPUT_1"')
    assert done.stdout.strip() == str(node.scratch / "hydrator-inputs" / below)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("false", "false ended with status 1"),
        ("true", "left nothing"),
        ("no-such-tool {did}", "cannot be started"),
        ("sh -c 'kill -9 $$'", "ended with status -9"),
        ("rm -r {path}", "left nothing"),
        ("sh -c 'rm -r $0; ln -s nowhere $0' {path}", "left nothing"),
        ("echo 'unbalanced {path}", "No closing quotation"),
        ("/dev/null {path}", "cannot be started"),
        ("e\x00cho {path}", "cannot be started"),
    ],
)
def test_dataset_that_cannot_be_fetched_is_a_miss(node, command, sentence):
    node.takes("lofar:L1.ms", stage_in=command)
    assert sentence in node.missed()


def test_stage_in_command_that_takes_too_long_is_killed(node):
    left = node.scratch / "left"
    command = f"sh -c 'echo $$ > {left}; exec sleep 600'"
    with pytest.raises(WrapperError, match=r"took over 0\.5 s"):
        job_start.fetch(Dataset(1, {"did": "lofar:L1"}), command, str(node.scratch), 0.5)
    assert not Path(f"/proc/{left.read_text().strip()}").exists()


def test_signal_ends_the_stage_in_command_too(node):
    left = node.scratch / "left"
    node.takes("lofar:L1.ms", stage_in=f"sh -c 'echo $$ > {left}; exec sleep 60'")
    with subprocess.Popen(
        [node.wrapper(), "true"], cwd=node.scratch, env=node.environment, stderr=subprocess.DEVNULL
    ) as running:
        pid = wait_for(lambda: left.exists() and left.read_text().strip(), "the fetching to run")
        running.terminate()
        assert running.wait(120) == -signal.SIGTERM
    wait_for(lambda: not is_running(pid), "the fetching to end")


# ------------------------------------------------------------------------------- rates of fetched data


def test_earlier_rates_of_the_job_stay_and_the_list_fits(node):
    attributes = node.chirp()
    old = [f"NL:{n}00000000:9.0:1:UK" for n in range(1, 30)]
    node.job.write_text(f"ChirpDataLocalityReads = {job_start.prepend_items('X', old, {})[1]}\n")
    big = "sh -c 'truncate -s 200000000 $0/f; printf NL > $HYDRATOR_SOURCE_FILE' {path}"
    node.takes("lofar:L1.ms", stage_in=big)
    assert node.run("true").returncode == 0
    new, *kept = re.findall(r'"([^"]*)"', attributes["ChirpDataLocalityReads"])
    assert new.startswith("NL:200000000:")
    assert kept == old[: len(kept)]
    assert len(kept) == job_start.MOST_MISSES - 1
