"""Parsets of Rapthor, and the texts of the job that runs one."""

import configparser
import shlex

import pytest

from hydrator.config import SubmitSettings
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Did
from hydrator.submit.rapthor.environment import MAX_VARIABLE_BYTES, export_lines
from hydrator.submit.rapthor.job import (
    RapthorRun,
    RunOptions,
    job_lines,
    run_name,
    submit_description,
)
from hydrator.submit.rapthor.machine import job_parset, spelling_questions
from hydrator.submit.rapthor.outlook import rank_sites
from hydrator.submit.rapthor.parset import parse_parset
from tests.factories import CAM, L1, L2, NOON, OSO, RAL, DatasetState, facts, replica


def parset(input_ms: str, more: str = "") -> bytes:
    return f"[global]\ndir_working = /data/run\ninput_ms = {input_ms}\n{more}".encode()


def searches(input_ms: str) -> tuple[str, ...]:
    return parse_parset(parset(input_ms), "run.parset").input_globs


def refusal(content: bytes) -> str:
    with pytest.raises(ConfigError) as refused:
        parse_parset(content, "run.parset")
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/data/*.ms", ("/data/*.ms",)),
        ("[a.ms, b*.ms]", ("a.ms", "b*.ms")),
        ('["a.ms", "b.ms"]', ("a.ms", "b.ms")),
        ('"12h30m"', ("12h30m",)),
        ('"a, b.ms"', ("a, b.ms",)),
        ("[a.ms,]", ("a.ms",)),
        ("a, b", ("a, b",)),
        ("['a', '', 'b#1']  # both", ("", "a", "b#1")[1:]),
        ("[LM]*.ms", ("[LM]*.ms",)),
        ("%(x)s.ms", ("%(x)s.ms",)),
        *((name, (name,)) for name in ("L1.ms", "2d.ms", "30m/*.ms", "12h.ms")),
    ],
)
def test_input_ms_is_read_in_every_form_that_rapthor_accepts(written, meant):
    assert searches(written) == meant


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[global]\ninput_ms = caf\xe9.ms\n", "not UTF-8 text (byte 23)"),
        (b"input_ms = a.ms\n", "no section headers"),
        (b"[global]\ninput_ms = a\ninput_ms = b\n", "already exists"),
        (b"[global\n", "not a parset"),
        (b"[global]\n\0\n", "NUL"),
        *((parset(empty), "names no measurement set") for empty in ("[]", "''", "['', ' ']")),
        (b"[global]\n", "dir_working and input_ms"),
        (b"[calibration]\nx = 1\n", "dir_working and input_ms"),
        (b"[Global]\ninput_ms = a.ms\ndir_working = /x\n", "requires; [Global]: did you mean [global]?"),
        (parset("['/d/A.MS' '/d/B.MS']"), "input_ms: a comma is missing between two texts"),
        (parset("['A.MS', 'B.MS'\n  'C.MS']"), "input_ms: a comma is missing between two texts"),
        (
            parset("a.ms", "[imaging]\nnormalization_skymodels = ['/d/1' '/d/2']\n"),
            "normalization_skymodels: a comma is missing between two texts",
        ),
        (parset("[/a/x.MS"), "input_ms: a bracket is missing: write [a, b]"),
        (parset("x.MS  # my ms"), "input_ms: a comment needs a line of its own"),
        (parset("[x.MS, y.MS] # mine"), "input_ms: a comment needs a line of its own"),
        (parset("x.MS", "strategy = a.py # mine\n"), "strategy: a comment needs a line of its own"),
        (parset("None"), "input_ms"),
        (b"[DEFAULT]\ninput_ms = a.ms\n[global]\ndir_working = /x\n", "input_ms"),  # as in Rapthor
        *(
            (parset(number), "put the name in quotes")
            for number in ("12", "1e5", "12h30m", "5 deg", "[a.ms, 3]", "True", "b'x'")
        ),
    ],
)
def test_unreadable_parset_is_rejected_with_one_sentence(content, told):
    assert told in refusal(content)
    assert refusal(content).startswith("run.parset: ")


def test_list_without_brackets_that_matches_nothing_gets_a_hint():
    assert "write a list in brackets" in str(parse_parset(parset("a, b"), "p").missing_brackets_hint("a, b"))
    assert parse_parset(parset("[a, b]"), "p").missing_brackets_hint("a") is None
    assert parse_parset(parset('["a, b", "c"]'), "p").missing_brackets_hint("a, b") is None


def job_options(more: str, files: dict[str, str] | None = None) -> tuple[dict[str, dict[str, str]], str]:
    """The sections of the job's parset, and what the user is told about them."""
    text, sentences = job_parset(parse_parset(parset("[a.ms,\n  b.ms]", more), "p"), files or {})
    read = configparser.ConfigParser(interpolation=None)
    read.read_string(text)
    return {name: dict(read[name]) for name in read.sections()}, "\n".join(sentences)


ONE_SLOT = {
    "batch_system": "single_machine",
    "max_nodes": "1",
    "cpus_per_task": "{cores}",
    "max_cores": "{cores}",
    "max_threads": "{cores}",
    "mem_per_node_gb": "{memory_gb}",
    "local_scratch_dir": "{scratch}",
}


PLACES_TOLD = (
    "the job's scratch folder and the paths at its site replace dir_working = /data/run,"
    " input_ms = [a.ms, b.ms]"
)


def test_job_parset_names_what_the_wrapper_fills_in():
    sections, told = job_options("Strategy = /a/my.py\nx = 1\n", {"/a/my.py": "my.py"})
    assert sections["global"] == {
        "dir_working": "{scratch}/rapthor", "input_ms": "{input_ms}", "strategy": "{scratch}/my.py", "x": "1",
    }  # fmt: skip
    assert sections["cluster"] == ONE_SLOT
    assert told == f"{PLACES_TOLD}, strategy = /a/my.py"


@pytest.mark.parametrize(
    ("written", "in_the_job"),
    [
        ("batch_system = slurm", "single_machine"),
        ("batch_system = slurm_static", "single_machine"),
        ("max_nodes = 12", "1"),
        ("max_cores = 96", "{cores:96}"),
        ("cpus_per_task = 64.0", "{cores:64}"),
        ("dp3_max_threads = 64", "{cores:64}"),
        ("wsclean_max_threads = 192", "{cores:192}"),
        ("filter_skymodel_ncores = 15", "{cores:15}"),
        ("deconvolution_threads = 14", "{cores:14}"),
        ("parallel_gridding_threads = 6", "{cores:6}"),
        ("parallel_gridding_tasks = 6", "{cores:6}"),
        ("local_dask_workers = 8", "{cores:8}"),
        ("mem_per_node_gb = 384", "{memory_gb:384}"),
        ("local_scratch_dir = /fast", "{scratch}"),
        ("global_scratch_dir = /shared", "{scratch}"),
        ("local_scratch_dir = auto", "{scratch}"),
        ("max_threads = False", "{cores}"),
        ("dir_local = /fast", None),
        ("use_container = True", "False"),
        ("dask_scheduler = tcp://login:8786", None),
        ("dask_dashboard_address = :8787", None),
        ("prefect_api_url = http://login:4200/api", None),
        ("prefect_api_mode = external", None),
        ("prefect_task_runner = external_dask", None),
        ("[imaging]\nmem_gb = 190", "{memory_gb:190}"),
        ("[imaging]\nuse_mpi = True", "False"),
        # Rapthor 3 refuses a number of threads above the cores of one worker
        ("[cluster]\nlocal_dask_workers = 8\ndp3_max_threads = 64", "{cores/8:64}"),
        ("[cluster]\nlocal_dask_workers = 8\nmax_threads = 9", "{cores/8:9}"),
    ],
)
def test_option_of_another_machine_is_changed_and_told(written, in_the_job):
    more = written if written.startswith("[") else f"[cluster]\n{written}"
    sections, told = job_options(more + "\n")
    header, line = more.split("\n")[0], more.split("\n")[-1]
    assert sections[header[1:-1]].get(line.partition(" = ")[0]) == in_the_job
    assert line in told


@pytest.mark.parametrize(
    "written",
    [
        "keep_temporary_files = True",
        "prefect_retries = 2",
        "prefect_task_runner = sync",
        "prefect_api_mode = ephemeral",
        "use_container = False",
        "dp3_max_threads = 0",
        "dask_scheduler = None",
        "cwl_runner = cwltool",
    ],
)
def test_option_that_fits_every_machine_is_kept_without_a_word(written):
    sections, told = job_options(f"[cluster]\n{written}\n")
    name, _, value = written.partition(" = ")
    assert sections["cluster"] == {**ONE_SLOT, name: value}
    assert told == PLACES_TOLD


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        ("[cluster]\nray_head = login\n", "[cluster] ray_head = login"),
        ("[imaging]\nmpi_hosts = a, b\n", "[imaging] mpi_hosts = a, b"),
        ("[observation]\nnumthreads = 96\n", "[observation] numthreads = 96"),
        ("[imaging]\nidg_mem = 300\n", "[imaging] idg_mem = 300"),
        ("[imaging]\nshared_facet_rw = True\n", ""),
    ],
)
def test_unknown_option_of_a_machine_is_a_warning(more, warned):
    sections, told = job_options(more)
    section, option = more.split("\n")[:2]
    assert sections[section[1:-1]][option.split(" = ")[0]] == option.split(" = ")[1]
    assert any(line.endswith(warned) for line in told.splitlines())
    assert (told != PLACES_TOLD) == bool(warned)


@pytest.mark.parametrize(
    "written",
    [
        "facets = {scratch}/a.reg",
        "x = a {input_ms}",
        "y = {cores}",
        "y = {memory_gb:9}",
        "[{scratch}]\nz = 1",
    ],
)
def test_placeholder_that_the_user_wrote_is_told_as_filled_in(written):
    _, told = job_options(f"[imaging]\n{written}\n")
    section, _, option = written.rpartition("\n")
    assert f"{section or '[imaging]'} {option}" in told.partition("{memory_gb}")[2]
    assert "v = aaa" in job_options(f"[imaging]\nv = {'a' * 200} {{scratch}}\n")[1]


@pytest.mark.parametrize("option", ["max_cores", "mem_per_node_gb"])
def test_limit_that_is_no_number_is_refused(option):
    with pytest.raises(ConfigError, match=f"{option} = lots: Rapthor needs a number here"):
        job_options(f"[cluster]\n{option} = lots\n")


@pytest.mark.parametrize("written", ["x = {scratchy}", "y = {corers}", "z = scratch"])
def test_braces_that_are_no_placeholder_are_not_told(written):
    assert job_options(f"[imaging]\n{written}\n")[1] == PLACES_TOLD


@pytest.mark.parametrize(
    "option",
    [
        "prefect_api_url = https://me:hunter2@x/api",
        "prefect_api_key = hunter2",
        "prefect_api_auth_string = me:hunter2",
        "my_worker_token = hunter2",
    ],
)
def test_password_in_an_option_of_another_machine_is_not_shown(option):
    _, told = job_options(f"[cluster]\n{option}\n")
    assert option.partition(" ")[0] in told
    assert "hunter2" not in told


def test_parset_lists_the_other_files_that_rapthor_reads():
    read = parse_parset(
        parset(
            "a.ms", "input_skymodel = /sky.txt\nfacet_layout = None\nstrategy = selfcal\ninput_h5parm =\n"
        ),
        "p",
    )
    assert read.files == {"input_skymodel": ["/sky.txt"]}
    assert parse_parset(parset("a.ms", "strategy = /my/own.py\n"), "p").files == {"strategy": ["/my/own.py"]}
    assert parse_parset(parset("a.ms", "strategy = 5\n"), "p").files == {}


@pytest.mark.parametrize("written", ["[120.txt, /far/160.txt]", "['120.txt', '/far/160.txt']"])
def test_each_file_of_a_list_has_its_path_at_the_job(written):
    sections, told = job_options(f"[imaging]\nnormalization_skymodels = {written}\n", {"120.txt": "120.txt"})
    assert sections["imaging"] == {"normalization_skymodels": "['{scratch}/120.txt', '/far/160.txt']"}
    assert f"normalization_skymodels = {written}" in told
    sections, _ = job_options(f"[imaging]\nnormalization_skymodels = {written}\n")
    assert sections["imaging"] == {"normalization_skymodels": written}


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ("input_skymodell = a\nstrategey = b\n", ["input_skymodel in [global]?", "strategy in [global]?"]),
        ("[clutser]\n", ["[cluster]?"]),
        ("[Imaging]\nrobust = 0\n", ["[imaging]?"]),
        ("batch_system = slurm\n", ["batch_system in [cluster]?"]),
        ("[cluster]\nbatch_sytem = slurm\nmem_per_node_gb = 1\n", ["batch_system in [cluster]?"]),
        ("selfcal_data_fraction = 1\n[imaging]\nmem_gb = 1\nastrometry_skymodel = a\n", []),
        ("polarisations = 4\n[skymodels]\nx = 1\n[cluster]\nprefect_colour = red\n", []),
    ],
)
def test_misspelt_options_and_sections_become_questions_and_new_ones_do_not(more, asked):
    questions = spelling_questions(parse_parset(parset("a.ms", more), "p"))
    assert [question.partition("did you mean ")[2] for question in questions] == asked


# --- the job


def run(*dids: str, sizes=None, **wish) -> RapthorRun:
    return RapthorRun("r1", "r1", tuple(Did(did) for did in dids), sizes or {}, RunOptions(**wish))


def description(of: RapthorRun, **more) -> str:
    lines = job_lines(
        of,
        SubmitSettings(**more),
        origin="run.parset",
        input_files=["run.parset"],
        command=["rapthor", "run.parset"],
        site_attributes=["GLIDEIN_Site"],
    )
    return submit_description(lines, of.options.extra_lines)


def test_run_is_one_job_that_retries_elsewhere_after_a_miss():
    lines = description(run("lofar:L1")).splitlines()
    assert '+RequiredDatasets = {"lofar:L1"}' in lines
    assert '+DataLocality = "require"' in lines
    assert 'arguments = "--parset run.parset -- rapthor run.parset"' in lines
    assert "request_cpus = 16" in lines
    assert "request_memory = 61035" in lines
    assert "universe = vanilla" in lines
    assert "job_machine_attrs = DataLocalitySite, GLIDEIN_Site" in lines
    assert sum(line.startswith("requirements = ") for line in lines) == 1
    missed = "ExitBySignal =!= true && ExitCode =?= 85"
    assert f"on_exit_remove = ! ({missed}) && JobMaxRetries is undefined" in lines
    assert lines[-1] == "queue"


def test_description_has_the_users_container_rank_and_lines():
    lines = description(
        run("lofar:L1", requirements="TARGET.Cpus > 3", rank="TARGET.Mips", extra_lines=("+A = 1",)),
        container="docker://x/y",
    ).splitlines()
    assert "universe = container" in lines
    assert "container_image = docker://x/y" in lines
    assert "rank = (TARGET.Mips) + (MY.DataLocalityRank ?: 0.0)" in lines
    assert "+A = 1" in lines
    assert any(line.startswith("requirements = (TARGET.Cpus > 3) && ") for line in lines)


def test_run_name_has_only_characters_without_quoting():
    assert run_name("my run;x\n") == "my-run-x"
    assert run_name("///") == "rapthor"


# --- the environment


def exported(text: str) -> dict[str, str]:
    words = [shlex.split(line) for line in text.splitlines()]
    assert all(word[0] == "export" and len(word) == 2 for word in words)
    return dict(word[1].split("=", 1) for word in words)


def test_exports_list_the_attributes_without_a_semicolon():
    found = exported(export_lines(run("lofar:L1", "lofar:L2", sizes={L1: 1, L2: 2}), {}, ""))
    assert found == {
        "_CONDOR_SUBMIT_ATTRS": "RequiredDatasets DataLocality WorkflowRun",
        "_CONDOR_RequiredDatasets": '{"lofar:L1","lofar:L2"}',
        "_CONDOR_DataLocality": '"require"',
        "_CONDOR_WorkflowRun": '"r1"',
    }


def test_exports_keep_the_names_of_the_environment_or_of_the_configuration():
    found = exported(
        export_lines(run("lofar:L1"), {"_CONDOR_SUBMIT_ATTRS": "Mine, requireddatasets"}, "Lost")
    )
    assert found["_CONDOR_SUBMIT_ATTRS"] == "Mine RequiredDatasets DataLocality WorkflowRun"
    configured = exported(export_lines(run("lofar:L1"), {}, "$(FOO) Admins"))
    assert configured["_CONDOR_SUBMIT_ATTRS"].startswith("$(FOO) Admins RequiredDatasets")


def test_exports_are_idempotent():
    once = exported(export_lines(run("lofar:L1"), {}, ""))
    assert exported(export_lines(run("lofar:L1"), once, "")) == once


def test_exports_that_no_shell_can_have_are_rejected():
    long = run(*(f"lofar:{'x' * 400}{n:04}" for n in range(MAX_VARIABLE_BYTES // 400)))
    with pytest.raises(ConfigError, match="as one job"):
        export_lines(long, {}, "")


def test_run_has_the_attributes_of_its_datasets_and_options():
    asked = run("lofar:L2", "lofar:L1", mode="wait", max_wait_seconds=60, expected_seconds=3600)
    assert asked.attributes == {
        "RequiredDatasets": '{"lofar:L1","lofar:L2"}',
        "DataLocality": '"wait"',
        "DataLocalityMaxWait": "60",
        "DataLocalityExpectedSeconds": "3600",
        "WorkflowRun": '"r1"',
    }
    assert "DataLocality" not in run("lofar:L1", mode=None).attributes, "the pool's default"


# --- what would match now


def test_outlook_ranks_sites_by_bytes_and_lists_missing_datasets():
    view = facts(
        replica(L1, CAM),
        replica(L2, RAL),
        replica(L1, RAL, DatasetState.STAGING, 0.5),
        sites=(CAM, RAL, OSO),
    )
    asked = run(L1, L2, sizes={L1: 10, L2: 30})
    found = rank_sites(asked, view.sites, {RAL: {L1: "/1", L2: "/2"}}, now=NOON.timestamp() + 60)
    assert [(o.site, o.local_bytes, o.available_count, o.has_paths) for o in found] == [
        (RAL, 30, 1, True),
        (CAM, 10, 1, False),
        (OSO, 0, 0, False),
    ]
    assert found[0].missing_states == {L1: "STAGING"}
    assert found[2].missing_states == {L1: "absent", L2: "absent"}
    unasked = rank_sites(asked, view.sites, {}, now=NOON.timestamp(), unanswered_dids={L1})
    assert [o.missing_states for o in unasked] == [
        {L1: "STAGING"},
        {L2: "absent"},
        {L1: "not known", L2: "absent"},
    ]
    assert not any(o.may_have_all for o in (*found, *unasked))
    unknown = rank_sites(asked, facts(sites=(CAM,)).sites, {}, now=NOON.timestamp(), unanswered_dids={L1, L2})
    assert [o.may_have_all for o in unknown] == [True]
    assert [o.oldest_age_seconds for o in found] == [60, 60, None]
    assert not any(o.can_run for o in found)


def test_site_with_all_datasets_qualifies_without_known_sizes():
    view = facts(replica(L1, CAM), replica(L1, RAL), replica(L2, RAL))
    paths = {RAL: {L1: "/1", L2: "/2"}}
    first = rank_sites(run(L1, L2), view.sites, paths, now=NOON.timestamp())[0]
    assert (first.site, first.can_run, first.local_bytes) == (RAL, True, None)


def test_site_without_all_paths_qualifies_only_if_the_run_can_fetch():
    view = facts(replica(L1, RAL), replica(L2, RAL))
    paths = {RAL: {L1: "/1"}}

    def qualifies(*, fetches: bool) -> bool:
        first = rank_sites(run(L1, L2), view.sites, paths, now=NOON.timestamp(), can_fetch=fetches)[0]
        assert first.site == RAL
        return first.can_run

    assert [qualifies(fetches=False), qualifies(fetches=True)] == [False, True]
