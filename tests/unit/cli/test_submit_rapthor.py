"""`hydrator submit rapthor` as a user types it, without a pool: files, messages and errors."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import typer

from adapters.files.catalogue import FileCatalogue
from hydrator.cli.commands.submit.rapthor.run import find_files_to_send
from hydrator.cli.output.new_files import make_new_folder, write_new_file
from hydrator.config import StorageArea
from hydrator.domain.model import Site, SiteAd, Snapshot
from hydrator.server.auth import TokenAuthenticator
from hydrator.submit.rapthor.parset import parse_parset
from testbed.files import as_nobody, write_program
from testbed.processes import run_program
from tests.command_line import run_hydrator, run_text
from tests.factories import NOON, demand, server_state
from tests.served import server_of

pytestmark = pytest.mark.outside

CATALOGUE = """
sites = ["UK", "AU"]
[datasets."lofar:L1.ms"]
bytes = 100
sites.UK = "available"
[datasets."lofar:L2.ms"]
bytes = 300
sites.UK = "available"
sites.AU = { state = "staging", fraction = 0.5 }
"""
CONFIG = """
[daemon]
state_dir = "state"
default_scope = "lofar"
[demand]
ask_schedds = false
[publish.collector]
enabled = false
[[catalogue]]
type = "file"
path = "catalogue.toml"
"""
STORAGE = '[[storage]]\nsite = "UK"\nprefix = "/data"\nrule = "name"\n'


class Host:
    """A folder with a configuration, a catalogue and parsets, in which commands run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "catalogue.toml").write_text(CATALOGUE)
        self.configure(STORAGE)

    def configure(self, more: str) -> None:
        (self.folder / "config.toml").write_text(CONFIG + more)

    def submit(
        self, input_ms: str, *options: str, more: str = "", status: int = 0
    ) -> subprocess.CompletedProcess[str]:
        text = f"[global]\ndir_working = /data/run\ninput_ms = {input_ms}\n{more}"
        (self.folder / "run1.parset").write_text(text)
        return self.run("run1.parset", *options, status=status)

    def run(self, parset: str, *options: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        words = ("submit", "rapthor", parset, "-c", "config.toml", *options)
        done = run_text(*words, cwd=self.folder)
        assert done.returncode == status, done
        return done

    def job(self, parent: str = "job") -> Path:
        """The folder of the only submission below *parent*."""
        (folder,) = (self.folder / parent).glob("*.run")
        return folder

    def refusal(self, input_ms: str, *options: str, status: int = 2, more: str = "") -> list[str]:
        done = self.submit(input_ms, *options, more=more, status=status)
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        return [line.removeprefix("hydrator: ") for line in done.stderr.splitlines()]


@pytest.fixture
def host(tmp_path) -> Host:
    return Host(tmp_path)


def test_submit_rapthor_prints_the_description_and_writes_no_file(host):
    before = set(host.folder.iterdir())
    done = host.submit("[L1.ms, /x/L2.ms/]")
    assert '+RequiredDatasets = {"lofar:L1.ms","lofar:L2.ms"}' in done.stdout.splitlines()
    assert "-o FOLDER" in done.stderr
    assert set(host.folder.iterdir()) - before == {host.folder / "run1.parset"}


@pytest.mark.parametrize("options", [("--as", "env"), ()], ids=" ".join)
def test_bug_of_a_catalogue_is_logged_without_values_and_not_in_the_output(host, monkeypatch, options):
    """A shell may evaluate the output."""

    def read(self, dids):
        password = "s3cret-of-a-variable"
        raise KeyError(len(password))

    monkeypatch.setattr("adapters.catalogue_client.WorkerCatalogue.read", read)
    done = host.submit("L1.ms", "--allow-unknown", *options)
    assert done.stdout.startswith(("export ", "# run1.parset as one job"))
    assert "catalogue file failed: this is a bug" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr


def test_archives_of_unknown_size_are_told_because_the_job_requests_no_disk_for_them(host):
    archives = '[datasets."lofar:L3.ms.tar"]\nsites.UK = "available"\n'
    archives += '[datasets."lofar:L4.ms.tar"]\nbytes = 2_000_000_000\nsites.UK = "available"\n'
    (host.folder / "catalogue.toml").write_text(CATALOGUE + archives)
    done = host.submit("[L1.ms, L3.ms, L4.ms]", "--disk-gb", "7")
    assert "unpacks lofar:L3.ms.tar, of unknown size: add room with --disk-gb (now 7 GB)" in done.stderr
    assert f"request_disk = {round(9e9 / 1024)}\n" in done.stdout
    assert "reads no archives" not in done.stderr


@pytest.mark.parametrize("ending", [".tar.gz", ".tgz", ".zip", ".tar.zst", ".flagged_1ef66b9a.tar", ".TGZ"])
def test_archive_that_the_job_does_not_unpack_is_told(host, ending):
    (host.folder / "catalogue.toml").write_text(f'{CATALOGUE}[datasets."lofar:L3.ms{ending}"]\n')
    done = host.submit(f"[L1.ms, L3.ms{ending}]", "--allow-unknown")
    assert f"not lofar:L3.ms{ending}\n" in done.stderr


def test_job_folder_has_all_files_of_the_job(host):
    (host.folder / "sky.txt").write_text("a model")
    done = host.submit("L1.ms", "-o", "job", "--name", "my run", more="input_skymodel = sky.txt\n")
    job = host.job()
    assert re.fullmatch(r"my-run-\d{8}T\d{6}Z\.run", job.name)
    assert done.stdout == f"job/{job.name}\n"
    assert f"cd job/{job.name} && condor_submit my-run.sub" in done.stderr
    assert list((host.folder / "job").iterdir()) == [job]
    assert {path.name for path in job.iterdir()} == {
        "my-run.sub",
        "run.parset",
        "hydrator-paths.json",
        "hydrator-job-start.py",
        "rapthor",
    }
    (inputs,) = [
        line
        for line in (job / "my-run.sub").read_text().splitlines()
        if line.startswith("transfer_input_files")
    ]
    assert inputs.endswith(f", {host.folder / 'sky.txt'}")
    assert "input_skymodel = {scratch}/sky.txt" in (job / "run.parset").read_text()
    paths = json.loads((job / "hydrator-paths.json").read_text())
    assert paths["sites"] == {"UK": {"lofar:L1.ms": "/data/lofar/L1.ms"}}
    assert paths["datasets"][0]["name"] == "L1.ms"
    assert (job / "hydrator-job-start.py").stat().st_mode & 0o111


def test_every_file_of_a_list_is_transferred(host):
    for name in ("120.txt", "160.txt"):
        (host.folder / name).write_text("a model")
    more = "[imaging]\nnormalization_skymodels = [120.txt, 160.txt, /at/the/site.txt]\n"
    done = host.submit("L1.ms", "-o", "job", more=more)
    assert f"{host.folder / '120.txt'}, {host.folder / '160.txt'}\n" in (host.job() / "run1.sub").read_text()
    line = "normalization_skymodels = ['{scratch}/120.txt', '{scratch}/160.txt', '/at/the/site.txt']"
    assert line in (host.job() / "run.parset").read_text()
    assert "normalization_skymodels = /at/the/site.txt is not a file on this host" in done.stderr


@pytest.mark.parametrize("written", ["input_skymodel = gone.txt", "facet_layout = ~/a.reg", "strategy = .py"])
@pytest.mark.parametrize("option", ["-o=job", "--dry-run"])
def test_relative_path_without_a_file_is_refused(host, written, option):
    (message,) = host.refusal("L1.ms", *option.split("="), more=f"{written}\n")
    assert message.startswith(f"{written}: there is no such file in the current folder")
    assert not (host.folder / "job").exists()


def test_file_that_the_user_cannot_read_is_refused(tmp_path, monkeypatch, capsys):
    """Root reads any file, so this process has the rights of another user for a moment."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    Path("sky.txt").touch(mode=0)
    content = b"[global]\ndir_working = /x\ninput_ms = a.ms\ninput_skymodel = sky.txt\n"
    parset = parse_parset(content, "p")
    with as_nobody(), pytest.raises(typer.Exit) as refused:
        find_files_to_send(parset)
    assert refused.value.exit_code == 2
    assert "input_skymodel = sky.txt: you cannot read this file: Permission denied" in capsys.readouterr().err


def test_sub_band_that_is_listed_twice_is_read_once(host):
    done = host.submit("[/x/L1.ms, L2.ms, /x/L1.ms]", "-o", "job")
    assert "input_ms names /x/L1.ms more than once: the run reads it once" in done.stderr
    read = json.loads((host.job() / "hydrator-paths.json").read_text())["datasets"]
    assert [dataset["did"] for dataset in read] == ["lofar:L1.ms", "lofar:L2.ms"]
    assert "more than once" not in host.submit("[/x/L1.ms, L2.ms]").stderr


@pytest.mark.parametrize(
    "written",
    ["[/x/L1.ms /x/L2.ms]", "[/x/L1.ms\n  /x/L2.ms]", "/x/L1.ms /x/L2.ms", '["/x/L1.ms;/x/L2.ms", "L2.ms"]'],
)
def test_two_names_without_a_comma_are_refused_not_read_as_the_second(host, written):
    (message,) = host.refusal(written)
    assert "Rapthor reads this text as one name" in message


@pytest.mark.parametrize("option", [(), ("--dry-run",)])
def test_misspelt_option_is_a_question(host, option):
    done = host.submit("L1.ms", *option, more="input_skymodell = x\n")
    assert "run1.parset: input_skymodell in [global]: did you mean input_skymodel in [global]?" in done.stderr


def test_container_image_is_transferred_from_its_absolute_path(host):
    (host.folder / "lofar.sif").touch()
    shown = host.submit("L1.ms", "--container", "lofar.sif").stdout
    assert f"container_image = {host.folder / 'lofar.sif'}\n" in shown
    (message,) = host.refusal("L1.ms", "--container", "gone.sif")
    assert "container gone.sif: this host has no such file" in message
    for options in (["/cvmfs/x/y.sif"], ["/at/the/site.sif", "--line", "transfer_container = false"]):
        assert f"container_image = {options[0]}\n" in host.submit("L1.ms", "--container", *options).stdout


@pytest.mark.parametrize("container", [(), ("--container", "docker://x/rapthor")])
def test_everything_of_another_machine_is_told_and_not_in_the_job(host, monkeypatch, container):
    """Cases S17, S18 of cases/submit.md."""
    options = [
        "dask_scheduler = tcp://login:8786",
        "prefect_api_url = http://login:4200/api",
        "local_dask_workers = 8",
        "dp3_max_threads = 64",
        "wsclean_max_threads = 192",
        "use_container = True",
    ]
    variables = ("DASK_SCHEDULER", "PREFECT_API_URL")
    for name in variables:
        monkeypatch.setenv(name, "login")
    done = host.submit("L1.ms", "-o", "job", *container, more="\n".join(["[cluster]", *options, ""]))
    assert [text for text in (*options, *variables) if text not in done.stderr] == []
    assert "--container IMAGE runs the whole job" in done.stderr
    sent = (host.job() / "run.parset").read_text()
    assert [text for text in (*options, "login") if text in sent] == []


def test_two_files_of_the_job_with_one_name_are_rejected(host):
    for name in ("a/sky.txt", "b/sky.txt", "rapthor"):
        (host.folder / name).parent.mkdir(exist_ok=True)
        (host.folder / name).write_text("a model")
    (message,) = host.refusal("L1.ms", more="input_skymodel = a/sky.txt\napparent_skymodel = b/sky.txt\n")
    assert "two files of the job are called sky.txt" in message
    (message,) = host.refusal("L1.ms", more="input_skymodel = rapthor\n")
    assert "two files of the job are called rapthor" in message, "a file of ours"


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("rapthor --log my-run1.parset run1.parset.log", "run1.parset.log"),
        ("sh -c 'module load rapthor; rapthor run.parset;'", "module load rapthor; rapthor run.parset;"),
    ],
)
def test_other_names_and_a_script_in_one_argument_are_no_mistakes_of_a_command(host, command, part):
    assert part in host.submit("L1.ms", "--command", command).stdout


def test_line_that_replaces_a_line_of_the_job_or_has_no_effect_is_told(host):
    lines = ('+datalocality = "auto"', "queue_time = 1", "Requirements = true", "+Mine = 1", "+mine = 2")
    lines += ("RequestCpus = 4",)
    told = host.submit("L1.ms", *(word for line in lines for word in ("--line", line))).stderr
    assert [line for line in lines if f"--line {line} replaces" in told] == [lines[0], lines[2]]
    assert "--line RequestCpus = 4 has no effect: write request_cpus" in told


def test_submit_rapthor_without_storage_is_rejected(host):
    host.configure("")
    assert "no [[storage]] gives" in host.refusal("L1.ms")[0]
    host.configure('[[storage]]\nsite = "UK"\nprefix = "/d"\nrule = "table"\n')
    assert "UK lacks lofar:L1.ms" in host.refusal("L1.ms")[0]
    host.configure('[submit]\nstage_in = "get {did} {path}"\n')
    host.submit("L1.ms")


def test_run_is_limited_to_sites_with_all_paths_unless_it_can_fetch(host):
    aus = STORAGE.replace("UK", "AU") + 'table = { "lofar:L2.ms" = "x" }\n'
    host.configure(STORAGE + aus.replace('"name"', '"table"'))
    text = host.submit("[L1.ms, L2.ms]").stdout
    assert '+DataLocalityPathSites = {"UK"}' in text
    assert re.search(
        r"identicalMember\(\(.*TARGET.DataLocalitySite\) \?: .*, MY.DataLocalityPathSites\)", text
    )
    assert '+DataLocalityPathSites = {"AU","UK"}' in host.submit("L2.ms").stdout
    host.configure(STORAGE + '[submit]\nstage_in = "get {did} {path}"\n')
    assert "DataLocalityPathSites" not in host.submit("L1.ms").stdout


def test_dry_run_shows_a_site_with_the_data_and_without_storage(host):
    host.configure(STORAGE.replace("UK", "AU"))
    done = host.submit("L1.ms", "--dry-run")
    assert "no: no path there" in done.stdout
    assert done.stderr.endswith("the run cannot start at UK: no [[storage]] gives the data's path there\n")
    shown = json.loads(host.submit("L1.ms", "--dry-run", "--json").stdout)["sites"]
    assert [(site["site"], site["can_run"], site["has_paths"]) for site in shown] == [
        ("UK", False, False),
        ("AU", False, True),
    ]


def test_gpu_is_preferred_by_the_configuration_or_by_an_option(host):
    plain = host.submit("L1.ms").stdout
    assert "request_cpus = 16\n" in plain
    assert "GPU" not in plain
    asked = host.submit("L1.ms", "--gpu", "prefer", "--rank", "TARGET.KFlops", "--requirements", "A || B")
    assert "request_cpus = ((TARGET.GPUs >= 1) =?= true) ? 4 : 16\n" in asked.stdout
    assert (
        "rank = (((TARGET.KFlops) ?: 0.0) + 100 * MY.GPUPreference) + (MY.DataLocalityRank ?: 0.0)\n"
        in asked.stdout
    )
    assert "requirements = (A || B) && (TARGET.Cpus >= MY.RequestCpus) && (identicalMember(" in asked.stdout
    host.configure(STORAGE + '[submit]\ngpu = "require"\n')
    assert "request_gpus = 1\n" in host.submit("L1.ms").stdout
    assert "GPU" not in host.submit("L1.ms", "--gpu", "no").stdout


def test_require_gpus_must_be_a_classad_expression(host):
    host.configure(STORAGE + '[submit]\nrequire_gpus = "Capability >="\n')
    assert "[submit].require_gpus is not a ClassAd expression" in host.refusal("L1.ms", "--gpu", "prefer")[0]


def test_mode_wait_needs_a_stage_in_command(host):
    assert "stage_in" in host.refusal("L1.ms", "--mode", "wait")[0]
    host.configure('[submit]\nstage_in = "get {did} {path}"\n')
    done = host.submit("L1.ms", "--mode", "wait", "--max-wait", "60")
    assert "+DataLocalityMaxWait = 60" in done.stdout.splitlines()


def test_toil_exports_accept_mode_wait_without_a_stage_in_command(host):
    done = host.submit("L1.ms", "--as", "env", "--mode", "wait")
    assert "export _CONDOR_DataLocality='\"wait\"'" in done.stdout


def test_toil_exports_keep_the_bytes_of_earlier_values(host):
    host.submit("L1.ms")
    tools = host.folder / "tools"
    tools.mkdir()
    write_program(tools / "condor_config_val", "#!/bin/sh\nprintf '\\350'\n")
    words = ("run1.parset", "-c", "config.toml", "--as", "env")
    done = run_hydrator("submit", "rapthor", *words, cwd=host.folder, PATH=f"{tools}:/usr/bin:/bin")
    assert b"_CONDOR_SUBMIT_ATTRS='\xe8 RequiredDatasets " in done.stdout


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sky\n+Injected = true", "control character"),
        ("sky$$(X).txt", "has $$ in it"),
        ("sky, model.txt", "comma"),
    ],
)
def test_parset_file_with_an_unusable_name_is_rejected(host, name, told):
    (host.folder / name).write_text("a model")
    (output,) = host.refusal("L1.ms", "-o", "job", more=f"input_skymodel = {name!r}\n")
    assert told in output
    assert output.endswith("rename the file")
    assert not (host.folder / "job").exists()


@pytest.mark.parametrize("name", ["run1\nqueue 99\n.parset", os.fsdecode(b"run\xff.parset")])
def test_parset_with_special_characters_in_its_name_becomes_a_job(host, name):
    (host.folder / name).write_text("[global]\ndir_working = /data/run\ninput_ms = L1.ms\n")
    host.run(name, "-o", "job")
    (file,) = host.job().glob("*.sub")
    assert [line for line in file.read_text().splitlines() if line.startswith("queue")] == ["queue"]
    assert "queue 99" not in (host.job() / "run.parset").read_text().split("\n", 1)[1]


def test_submit_rapthor_does_not_change_files_and_links_of_the_user(host):
    """A user's file may have the name of a file of the job, and be in the same folder."""
    own = {name: f"{name} of the user" for name in ("run1.sub", "hydrator-paths.json", "sky.txt")}
    for name, text in own.items():
        (host.folder / name).write_text(text)
    (host.folder / "hydrator-job-start.py").symlink_to("sky.txt")
    (host.folder / "rapthor").symlink_to("/nowhere")
    parset = "[global]\ndir_working = /data/run\ninput_ms = L1.ms\n# mine\n"
    (host.folder / "run.parset").write_text(parset)
    host.run("run.parset", "-o", ".")
    assert {name: (host.folder / name).read_text() for name in own} == own
    assert (host.folder / "run.parset").read_text() == parset
    assert (host.folder / "hydrator-job-start.py").is_symlink()
    assert (host.job(".") / "hydrator-job-start.py").stat().st_mode & 0o777 == 0o755


def test_each_of_many_submissions_at_once_has_a_folder_of_its_own(tmp_path):
    def make(number: int) -> Path:
        return make_new_folder(
            tmp_path, "run1", ".run", lambda folder: write_new_file(folder / "mine", b"%d" % number)
        )

    with ThreadPoolExecutor(20) as threads:
        made = [*threads.map(make, range(20))]
    assert sorted(tmp_path.iterdir()) == sorted(made)
    assert [int((folder / "mine").read_text()) for folder in made] == [*range(20)]


def test_full_disk_is_one_sentence_and_leaves_no_files(host):
    """A limit for the size of files replaces a full disk: the wrapper is larger than 8 blocks."""
    before = set(host.folder.iterdir())
    (host.folder / "run1.parset").write_text("[global]\ndir_working = /data/run\ninput_ms = L1.ms\n")
    program = [sys.executable, "-m", "hydrator.cli", "submit", "rapthor", "run1.parset", "-c", "config.toml"]
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *program, "-o", "job"]
    done = run_program(limited, cwd=host.folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == "hydrator: job: File too large; nothing was written; choose another folder with -o\n"
    )
    assert {path.name for path in set(host.folder.iterdir()) - before} <= {"run1.parset", "state"}


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_unwritable_output_folder_is_one_sentence(host, place):
    (host.folder / "file").write_text("mine")
    (output,) = host.refusal("L1.ms", "-o", place)
    assert output.startswith(f"{place}: ")
    assert (host.folder / "file").read_text() == "mine"


def condor_submit(host: Host, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in for condor_submit on PATH."""
    tool = host.folder / "bin" / "condor_submit"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")


def test_submit_option_submits_from_the_jobs_final_folder(host, monkeypatch):
    condor_submit(host, 'pwd > ../where; ls > ../files; test -f "$1"', monkeypatch)
    done = host.submit("L1.ms", "--submit", "-o", "jobs")
    folder = host.job("jobs")
    assert (host.folder / "jobs" / "where").read_text() == f"{folder}\n"
    assert "run1.sub" in (host.folder / "jobs" / "files").read_text()
    assert done.stderr == (
        f"hydrator: the job's files are in jobs/{folder.name}\n"
        "hydrator: run1.parset: the job's scratch folder and the paths at its site replace"
        " dir_working = /data/run, input_ms = L1.ms\n"
        f"hydrator: results: jobs/{folder.name}/ with images, logs, plots, regions, skymodels, solutions,"
        " visibilities\n"
        "hydrator: an evicted job loses all its results and starts from the beginning;"
        " --keep-on-eviction keeps its finished operations\n"
    )


def test_keep_on_eviction_transfers_the_working_folder(host):
    lines = host.submit("L1.ms", "--keep-on-eviction").stdout.splitlines()
    assert "when_to_transfer_output = ON_EXIT_OR_EVICT" in lines
    assert "transfer_output_files = rapthor" in lines
    assert 'arguments = "--parset run.parset --keep rapthor -- rapthor run.parset"' in lines
    done = host.submit("L1.ms", "-o", "job", "--keep-on-eviction")
    assert "evicted" not in done.stderr
    assert f"results: job/{host.job().name}/ with rapthor\n" in done.stderr


def test_second_submission_does_not_change_the_first_folder(host, monkeypatch):
    condor_submit(host, "exit 0", monkeypatch)
    host.submit("L1.ms", "--submit")
    first = host.job(".")
    before = {path: path.read_bytes() for path in first.iterdir() if path.is_file()}
    host.submit("L2.ms", "--submit", "--cpus", "3")
    assert {path: path.read_bytes() for path in first.iterdir() if path.is_file()} == before
    (second,) = set(host.folder.glob("*.run")) - {first}
    assert "L2.ms" in (second / "hydrator-paths.json").read_text()


def test_nothing_is_left_of_a_submission_that_is_refused(host, monkeypatch):
    condor_submit(host, "touch run1.out; echo no >&2; exit 4", monkeypatch)
    output = host.refusal("L1.ms", "--submit", "-o", "jobs/deep", status=1)
    assert output == ["no", "condor_submit ended with status 4; nothing was submitted"]
    assert list(host.folder.rglob("*.run")) == []


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("kill -INT $$", "was ended by signal 2"),
        ("kill -KILL $$", "was ended by signal 9"),
        ("echo '000 (1.0) Job submitted' > run1.log; exit 1", "ended with status 1"),
    ],
)
def test_where_there_may_be_a_job_its_files_stay(host, monkeypatch, script, how):
    """The schedd writes the job's log when it accepts the job, even if condor_submit then fails."""
    condor_submit(host, script, monkeypatch)
    (output,) = host.refusal("L1.ms", "--submit", status=1)
    assert output.startswith(
        f"condor_submit {how}: check with condor_q whether the job exists; its files stay in "
    )
    assert (host.job(".") / "run1.sub").exists()


def test_world_writable_output_folder_is_rejected(host):
    (host.folder / "job").mkdir()
    (host.folder / "job").chmod(0o777)
    (output,) = host.refusal("L1.ms", "-o", "job")
    assert "job: other users can write into this folder" in output
    assert list((host.folder / "job").iterdir()) == []


def test_search_without_a_match_is_rejected_with_one_sentence(host):
    (output,) = host.refusal("/nowhere/M*.none")
    assert "matches nothing, neither on this host nor in the catalogues" in output
    assert "with letter case, without [submit].patterns: list the names" in output
    (output,) = host.refusal("a.ms, b.ms")
    assert "write a list in brackets" in output


@pytest.mark.parametrize(
    ("input_ms", "told"),
    [
        ("/data/EN1/L600003/*.MS", "write the observation into the last part, as in L600003_*.MS"),
        ("[/data/*, /data/x/L600003*.MS]", "write the observation into the last part"),
        ("/data/?*.[mM][sS]", "write the observation into the last part"),
        ("/data/L60000*_SB000.MS", "matches 2 observations (L600001, L600003): write a list with one glob"),
        ("/data/*_SB000.MS", "matches 2 observations (L600001, L600003): write a list with one glob"),
    ],
)
def test_glob_for_more_than_one_observation_in_the_catalogues_is_refused(host, input_ms, told):
    names = ("L600001_SB000.MS", "L600003_SB000.MS", "L600003_SB001.MS")
    more = "".join(f'[datasets."lofar:{name}"]\nsites.UK = "available"\n' for name in names)
    (host.folder / "catalogue.toml").write_text(CATALOGUE + more)
    (message,) = host.refusal(input_ms)
    assert told in message
    done = host.submit("[/d/L600001_*.MS, /d/L600003_*1.MS]")
    assert '{"lofar:L600001_SB000.MS","lofar:L600003_SB001.MS"}' in done.stdout


@pytest.mark.parametrize("input_ms", ["/data/L7_SB*.ms", "/data/L7_SB1.ms"])
def test_name_in_a_catalogue_is_final_whatever_the_patterns_say(host, input_ms):
    host.configure(STORAGE + """[submit]\npatterns = [ { match = "(L7)_.*", did = "lofar:\\\\1" } ]\n""")
    (host.folder / "catalogue.toml").write_text(
        CATALOGUE + '[datasets."lofar:L7_SB1.ms"]\nsites.UK = "available"\n'
    )
    assert '+RequiredDatasets = {"lofar:L7_SB1.ms"}' in host.submit(input_ms).stdout


def test_catalogue_without_an_answer_is_reported_and_can_be_left_out(host):
    host.configure(STORAGE + '[[catalogue]]\ntype = "file"\nname = "gone"\npath = "not-there.toml"\n')
    output = "\n".join(host.refusal("elsewhere.ms", status=1))
    assert "catalogue gone gave no answer" in output
    assert "--allow-unknown" in output
    done = host.submit("elsewhere.ms", "--allow-unknown")
    assert '+RequiredDatasets = {"lofar:elsewhere.ms"}' in done.stdout
    assert "catalogue gone gave no answer" in done.stderr


def test_allow_unknown_accepts_names_that_the_default_scope_completes(host):
    *messages, _ = host.refusal("[L8.ms, L1.ms, L9.ms]")
    assert [line.partition(";")[0] for line in messages] == [
        "L8.ms: lofar:L8.ms is in no catalogue",
        "L9.ms: lofar:L9.ms is in no catalogue",
    ]
    assert all("[submit].names" in line for line in messages)  # L2.ms is another dataset, not a correction
    done = host.submit("[L8.ms, L1.ms]", "--allow-unknown")
    assert '+RequiredDatasets = {"lofar:L1.ms","lofar:L8.ms"}' in done.stdout
    assert "L8.ms" in done.stderr
    host.refusal("[L8.ms, b d.ms]", "--allow-unknown")


def sub_bands(host: Host, *absent: int, total: int = 244) -> str:
    """Put the sub-bands 0 to *total* but *absent* into the catalogue; return input_ms with all of them."""
    names = [f"L7_SB{number:03}.ms" for number in range(total)]
    there = "".join(
        f'[datasets."lofar:{name}"]\nbytes = 1\nsites.UK = "available"\n'
        for number, name in enumerate(names)
        if number not in absent
    )
    (host.folder / "catalogue.toml").write_text(CATALOGUE + there)
    return f"[{', '.join(names)}]"


@pytest.mark.parametrize("options", [(), ("--mode", "auto"), ("--dry-run",)])
def test_all_absent_sub_bands_are_listed_and_an_offer_is_made(host, options):
    """Case S20 of cases/submit.md."""
    input_ms = sub_bands(host, 7, *range(100, 108))
    messages = host.refusal(input_ms, *options)
    found = [line.partition(":")[0] for line in messages if "is in no catalogue" in line]
    assert found == ["L7_SB007.ms", *(f"L7_SB{number}.ms" for number in range(100, 108))]
    assert not any("did you mean" in line for line in messages)
    assert "9 of 244 measurement sets are absent; to run without them, add --skip-absent" in messages[-1]
    assert ("stage_in" in messages[0]) == (options == ("--mode", "auto"))


def test_all_absent_sub_bands_are_listed_without_a_default_scope_too(host):
    text = (host.folder / "config.toml").read_text()
    (host.folder / "config.toml").write_text(text.replace("default_scope", "# default_scope"))
    (absent,) = (line for line in host.refusal(sub_bands(host, 7, *range(100, 108))) if "SB007" in line)
    assert "set default_scope" in absent
    assert absent.partition(":")[0].split(", ") == [
        "L7_SB007.ms",
        *(f"L7_SB{n}.ms" for n in range(100, 108)),
    ]


@pytest.mark.parametrize(
    "option", [("--skip-absent",), ("--at-least", "0.9"), ("--at-least", str(235 / 244))]
)
def test_run_without_absent_sub_bands_reads_the_others(host, option):
    done = host.submit(sub_bands(host, 7, *range(100, 108)), "-o", "job", *option)
    read = json.loads((host.job() / "hydrator-paths.json").read_text())["datasets"]
    assert len(read) == 235
    assert "lofar:L7_SB007.ms" not in {dataset["did"] for dataset in read}
    assert "L7_SB107.ms: lofar:L7_SB107.ms is in no catalogue" in done.stderr
    assert "the run leaves out 9 of 244 measurement sets" in done.stderr


def test_run_without_absent_sub_bands_needs_enough_of_them(host):
    messages = host.refusal(sub_bands(host, 7, 8, total=10), "--at-least", "0.9")
    assert messages[-1] == "only 8 of 10 measurement sets are left; nothing was submitted"
    assert "only 0 of 2" in host.refusal("[A.ms, B.ms]", "--skip-absent")[-1]
    assert "add --skip-absent" not in host.refusal("[A.ms, B.ms]")[-1]


def test_dataset_without_a_site_is_absent_too(host):
    (host.folder / "catalogue.toml").write_text(f'{CATALOGUE}[datasets."lofar:L3.ms"]\nbytes = 9\n')
    done = host.submit("[L1.ms, L3.ms]", "--skip-absent")
    assert '+RequiredDatasets = {"lofar:L1.ms"}' in done.stdout
    assert "L3.ms: lofar:L3.ms is at no site" in done.stderr
    done = host.submit("[L1.ms, L3.ms]")
    assert '"lofar:L3.ms"' in done.stdout
    assert "lofar:L3.ms is at no site; the run waits" in done.stderr


def test_no_name_is_left_out_while_a_catalogue_does_not_answer(host):
    host.configure(STORAGE + '[[catalogue]]\ntype = "file"\nname = "gone"\npath = "not-there.toml"\n')
    messages = host.refusal("[L1.ms, L3.ms]", "--skip-absent", status=1)
    assert "catalogue gone gave no answer" in messages[0]


def test_dry_run_shows_sites_bytes_and_missing_datasets(host):
    done = host.submit("[L1.ms, L2.ms]", "--dry-run")
    assert [line.split()[:5] for line in done.stdout.splitlines()[1:3]] == [
        ["UK", "yes", "2", "of", "2"],
        ["AU", "no", "0", "of", "2"],
    ]
    assert "lofar:L2.ms STAGING" in done.stdout
    assert "2 datasets, 400 bytes, mode require" in done.stdout


@pytest.mark.parametrize("stage_in", ["", '[submit]\nstage_in = "fetch {did} {path}"\n'])
def test_did_that_could_leave_the_storage_prefix_is_rejected(host, stage_in):
    host.configure(STORAGE + stage_in)
    with (host.folder / "catalogue.toml").open("a") as file:
        file.write('[datasets."lofar:../../etc"]\nbytes = 1\nsites.UK = "available"\n')
    with (host.folder / "config.toml").open("a") as file:
        file.write(("" if stage_in else "[submit]\n") + 'names = { "etc.ms" = "lofar:../../etc" }\n')
    (output,) = host.refusal("etc.ms", "-o", "job")
    assert "lofar:../../etc" in output
    assert "as a path with '..'" in output
    assert not (host.folder / "job").exists()


def test_run_that_no_site_can_start_warns_or_exits_with_3(host):
    done = host.submit("[L1.ms, L2.ms]", "-o", "here")
    assert "no site has" not in done.stderr
    (host.folder / "catalogue.toml").write_text(
        CATALOGUE.replace('sites.UK = "available"\nsites.AU', "sites.AU")
    )
    output = (
        "no site has all data of the job now: AU has 0 of 2 (lofar:L1.ms absent, lofar:L2.ms STAGING 50 %);"
        " UK has 1 of 2 (lofar:L2.ms absent)"
    )
    done = host.submit("[L1.ms, L2.ms]", "-o", "waits")
    assert f"{output}; the run waits until a site can start it" in done.stderr
    done = host.submit("[L1.ms, L2.ms]", "-o", "refused", "--refuse-nowhere", status=3)
    assert f"{output}; nothing was submitted" in done.stderr
    assert not (host.folder / "refused").exists()
    host.submit("[L1.ms, L2.ms]", "--dry-run", "--refuse-nowhere", status=3)
    host.submit("[L1.ms, L2.ms]", "--dry-run")


def test_job_is_held_after_misses_at_all_sites_with_its_data(host):
    done = host.submit("[L1.ms, L2.ms]")
    (hold,) = [line for line in done.stdout.splitlines() if line.startswith("periodic_hold =")]
    assert 'member("UK", ChirpDataLocalityMissed)' in hold
    assert '"AU"' not in hold


@pytest.fixture
def areas() -> list[StorageArea]:
    """The [[storage]] of the submitter's daemon."""
    return [StorageArea(site="UK", prefix="/data", rule="name")]


@pytest.fixture
def submitter(host, areas) -> Iterator[Host]:
    """A host with the documented file of a submitter, and a daemon with a catalogue and a [[storage]]."""
    ads = {Site(name): SiteAd(Site(name), NOON, 1, ()) for name in ("AU", "UK")}
    view = server_state(ads, Snapshot({}), demand(), None, NOON, storage=areas)
    page = (Path(__file__).parents[3] / "docs" / "users" / "submit.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?daemon_url.*?)```", page, re.DOTALL)
    assert len([line for line in example.splitlines() if line and not line.startswith("#")]) <= 5
    catalogue = FileCatalogue("file", host.folder / "catalogue.toml", lambda: NOON)
    with server_of(lambda: view, find_datasets=catalogue.find) as daemon:
        (host.folder / "config.toml").write_text(example.replace("https://hydrator.example.org", daemon.url))
        yield host


def test_documented_file_of_a_submitter_submits_the_first_run_of_a_dataset(submitter):
    """Case S23 of cases/submit.md."""
    done = submitter.submit("/anywhere/L1.ms", "-o", "job")
    paths = json.loads((submitter.job() / "hydrator-paths.json").read_text())
    assert paths["sites"] == {"UK": {"lofar:L1": "/data/lofar/L1"}}
    assert '+DataLocalityPathSites = {"UK"}' in (submitter.job() / "run1.sub").read_text()
    assert "it is not known yet which sites have lofar:L1; the run waits" in done.stderr
    submitter.submit("L1.ms", "--dry-run")
    submitter.submit("L1.ms", "--refuse-nowhere", status=3)
    assert "matches nothing, neither on this host nor in the catalogues" in submitter.refusal("/x/M*.ms")[0]


ARCHIVES = """
[datasets."lofar:L7_SB055_uv.MS_3ceb3ffd.tar"]
[datasets."lofar:L7_SB056_uv.MS_97b75092.tar"]
[datasets."lofar:L8_SB055_uv.MS"]
"""


@pytest.mark.parametrize("rule", ["name", "hash", "identity"])
@pytest.mark.parametrize("input_ms", ["[/x/L7_SB055_uv.MS, L7_SB056_uv.MS/]", "/x/L7_SB*_uv.MS"])
def test_archives_are_found_by_a_daemon_that_no_job_has_named_them_to(submitter, areas, rule, input_ms):
    (submitter.folder / "catalogue.toml").write_text(CATALOGUE + ARCHIVES)
    areas[:] = [StorageArea(site="UK", prefix="/data", rule=rule)]
    submitter.submit(input_ms, "-o", "job")
    paths = json.loads((submitter.job() / "hydrator-paths.json").read_text())
    names = ["lofar:L7_SB055_uv.MS_3ceb3ffd.tar", "lofar:L7_SB056_uv.MS_97b75092.tar"]
    assert [dataset["did"] for dataset in paths["datasets"]] == names
    assert paths["sites"]["UK"].keys() == set(names)


def test_daemon_suggests_the_name_in_its_catalogue(submitter):
    (submitter.folder / "catalogue.toml").write_text(CATALOGUE + ARCHIVES)
    misspelt = ("[/x/L8_SB055_uv.ms, LOFAR:L8_SB055_uv.MS, /x/L7_SB055_uv.MS]",)
    for options in ((), ("--dry-run",)):
        listed, *questions, advice = submitter.refusal(*misspelt, *options)
        assert "daemon lists LOFAR:L8_SB055_uv.MS, lofar:L8_SB055_uv.ms; a job waits for it" in listed
        assert questions == [
            f"{did}: did you mean lofar:L8_SB055_uv.MS?"
            for did in ("LOFAR:L8_SB055_uv.MS", "lofar:L8_SB055_uv.ms")
        ]
        assert "accept it with --allow-unknown" in advice
    assert questions[0] in submitter.submit(*misspelt, "--allow-unknown").stderr
    submitter.submit("lofar:L8_SB055_uv.MS")
    done = submitter.submit("/x/L9_SB055_uv.MS")  # perhaps a file, which no search finds
    assert "did you mean" not in done.stderr
    assert "no catalogue of the daemon lists lofar:L9_SB055_uv.MS; a job waits for it" in done.stderr
    assert "daemon lists" not in submitter.submit("lofar:L8_SB055_uv.MS").stderr


def test_glob_of_a_submitter_matches_names_in_the_default_scope(submitter):
    (submitter.folder / "catalogue.toml").write_text(f'{CATALOGUE}[datasets."other:L9_SB1.MS"]\n')
    assert "matches nothing" in submitter.refusal("/x/L9_*.MS")[0]
    assert '{"other:L9_SB1.MS"}' in submitter.submit("other:L9_SB1.MS").stdout


def test_daemon_that_cannot_search_can_be_overruled(submitter):
    (submitter.folder / "catalogue.toml").write_text("]")
    *_, reason, offer = submitter.refusal("/x/L1_SB1.MS", status=1)
    assert "gave no answer: catalogue file: " in reason
    assert "--allow-unknown" in offer
    assert '{"lofar:L1_SB1.MS"}' in submitter.submit("/x/L1_SB1.MS", "--allow-unknown").stdout


def test_daemon_without_a_path_names_the_datasets(submitter, areas):
    areas[:] = [StorageArea(site="UK", prefix="/data", rule="hash")]
    for option in ("-o=job", "--dry-run"):
        done = submitter.submit("/x/L2.ms", *option.split("="), status=2)
        assert "the daemon gives no path of lofar:L2.ms at any site" in done.stderr
    areas.append(StorageArea(site="AU", prefix="/data", rule="name"))
    for option in ("-o=job", "--dry-run"):
        done = submitter.submit("/x/L2.ms", *option.split("="))
        told = "at UK: no [[storage]] gives the data's path there, or only those of files"
        assert f"{told}, and this host has no [[catalogue]] that lists the files\n" in done.stderr


@pytest.mark.parametrize(
    "option", [("--skip-absent",), ("--at-least", "0.5"), ("--skip-absent", "--dry-run")]
)
def test_absent_names_are_not_left_out_before_the_daemon_knows_them(submitter, option):
    """Without an answer about a dataset the run would wait for it, although the user said to skip it."""
    (output,) = submitter.refusal("[L1.ms, lofar:L2]", *option)
    assert "the daemon does not know yet whether a site has lofar:L1, lofar:L2" in output
    assert "submit without --skip-absent and --at-least" in output
    assert list(submitter.folder.rglob("*.run")) == []


def test_submitter_without_an_answer_of_the_daemon_submits_nothing(submitter):
    file = submitter.folder / "config.toml"
    file.write_text(re.sub(r"127.0.0.1:\d+", "127.0.0.1:1", file.read_text()))
    messages = submitter.refusal("/x/M*.ms", status=1)
    assert "gave no answer" in messages[0]
    assert messages[1].endswith(
        "matches nothing on this host: try again when the catalogue answers, or list the names"
    )
    messages = submitter.refusal("L1.ms", status=1)
    assert "gave no answer" in messages[0]
    assert "--allow-unknown" not in messages[-1]


@pytest.mark.parametrize("input_ms", ["L1.ms", "/x/M*.ms"])
def test_daemon_that_needs_a_token_says_which_line_is_missing(host, input_ms):
    tokens = host.folder / "tokens"
    tokens.touch(mode=0o600)
    view = server_state({}, Snapshot({}), demand(), None, NOON)
    with server_of(lambda: view, authenticator=TokenAuthenticator(tokens)) as daemon:
        (host.folder / "config.toml").write_text(
            f'[daemon]\ndefault_scope = "lofar"\n[submit]\ndaemon_url = "{daemon.url}"\n'
        )
        first, last = host.refusal(input_ms, status=1)
        reason = "gave no answer: refused: a token is required, in the header"
        assert first.startswith(f"catalogue daemon {daemon.url} {reason}")
    assert first.endswith("; set submit.token_file")
    assert "try again when the catalogue answers" in last


@pytest.mark.parametrize(
    ("input_ms", "told"),
    [
        *(
            (repr([name]), f"{name}: no catalogue has a dataset of that name, and it cannot be one:")
            for name in ("/x/my set.MS", 'quo"te.ms', "back\\slash.ms", "semi;colon.ms", "dollar$(X).ms")
        ),
        ("/data/L9/", "for the measurement sets in this folder write /data/L9/L1234_*.MS"),
        ("sub", "for the measurement sets in this folder write sub/L1234_*.MS"),
    ],
)
def test_name_that_cannot_be_a_dataset_is_explained(host, input_ms, told):
    (host.folder / "sub").mkdir()
    (message,) = host.refusal(input_ms)
    assert told in message


def test_dry_run_tells_that_requirements_are_not_evaluated(host):
    done = host.submit("L1.ms", "--dry-run", "--requirements", "TARGET.Cpus > 3")
    assert "--requirements and --rank are not evaluated" in done.stderr


def test_misspelled_name_is_rejected_with_and_without_dry_run(host):
    """The daemon, which a dry run queries, has only the datasets that jobs name."""
    view = server_state({}, Snapshot({}), demand(), None, NOON)
    with server_of(lambda: view) as daemon:
        host.configure(f'{STORAGE}[submit]\ndaemon_url = "{daemon.url}"\n')
        really = host.refusal("lofar:L1.mss")
        tried = host.refusal("lofar:L1.mss", "--dry-run")
    near = "did you mean lofar:L1.ms?"
    assert really == tried == [f"lofar:L1.mss: lofar:L1.mss is in no catalogue; {near}"]
