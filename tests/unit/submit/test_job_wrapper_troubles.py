"""Job wrapper on a failing node: every failure ends with 85, or the command runs."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.files import write_program
from testbed.processes import run_program
from tests.pythons import find_python
from tests.unit.submit.test_job_wrapper import FILE, PARSET, Node

pytestmark = pytest.mark.outside

PYTHON_3_6 = find_python("3.6")
HOOK_SCRIPT = Path(__file__).parents[3] / "deploy" / "pilots" / "locality_hook.sh"
FETCH = "cp -r HERE/L2.ms {path}"


@pytest.fixture
def node(tmp_path) -> Iterator[Node]:
    made = Node(tmp_path)
    made.environment["PATH"] = f"{Path(sys.executable).parent}:{made.environment['PATH']}"
    yield made
    made.close()


def fetching(node: Node, stage_in: str = FETCH, **more: object) -> None:
    """A job with a readable dataset, a dataset to fetch, and a parset."""
    node.takes("lofar:L1.ms", "lofar:L2.ms", stage_in=stage_in.replace("HERE", str(node.storage)), **more)
    if not (node.storage / "L2.ms").exists():
        node.holds("L2.ms")
    (node.scratch / "run.parset").write_bytes(PARSET)


def retried(done: "subprocess.CompletedProcess[str]", *words: str) -> None:
    assert (done.returncode, done.stderr.count("\n")) == (85, 1), done.stderr
    assert done.stderr.startswith("hydrator: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


# ------------------------------------------------------------------------------------- the scratch folder


@pytest.mark.parametrize("scratch", ["/proc/self/task", "/nowhere/at/all", "/dev/null"])
@pytest.mark.parametrize("stage_in", [FETCH, None])
def test_unwritable_scratch_folder_ends_the_job_with_85(node, scratch, stage_in):
    fetching(node, stage_in or "")
    if stage_in is None:
        node.holds("L1.ms")
    paths = str(node.scratch / "hydrator-paths.json")
    words = ("--paths", paths, "--parset", "run.parset", "--", "echo", "ran")
    retried(node.run(*words, _CONDOR_SCRATCH_DIR=scratch), "85 to run elsewhere")


def test_full_disk_ends_with_85_and_avoids_the_site_without_a_miss(node):
    fetching(node, "")
    node.holds("L1.ms")
    attributes = node.chirp()
    (node.scratch / "run.parset").write_bytes(PARSET + b"strategy = " + b"x" * 5000 + b"\n")
    wrapper = node.wrapper()
    limited = node.start(
        ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", wrapper, "--parset", "run.parset", "--", "echo", "ran"],
    )
    retried(limited, "File too large")
    assert attributes.keys() == {"ChirpDataLocalityMissed", "ChirpDataLocalityMissedUntil"}


def test_missing_working_folder_ends_the_job_with_85(node, tmp_path):
    fetching(node)
    removed_path = tmp_path / "gone"
    removed_path.mkdir()
    done = node.start(
        ["sh", "-c", 'rmdir "$0" && exec "$@"', removed_path, node.wrapper(), "echo", "ran"],
        cwd=removed_path,
        env={name: text for name, text in node.environment.items() if "SCRATCH" not in name},
    )
    assert (done.returncode, done.stdout) == (85, "")
    assert "hydrator: this node cannot start the job: " in done.stderr
    assert "Traceback" not in done.stderr


def test_failed_fetch_is_removed_and_missing_output_files_are_created(node):
    fetching(node, "sh -c 'echo much > $0/f; exit 1' {path}")
    node.job.write_text('TransferOutput = "gone.txt"\n')
    retried(node.run("true"))
    assert not (node.scratch / "hydrator-inputs").exists()
    assert (node.scratch / "gone.txt").is_socket()


# ------------------------------------------------------------------------------------ the stage-in command


def test_stage_in_command_may_replace_the_folder_by_a_file(node):
    fetching(node, "sh -c 'rmdir $0; echo one > $0' {path}")
    done = node.run("sh", "-c", 'cat "$INPUT_1"')
    assert (done.returncode, done.stdout) == (0, "one\n")


def test_stage_in_command_gets_only_names_that_are_safe_in_a_shell(node):
    bad = "/in/$(touch pwned);`touch pwned` '\"\n.ms"
    listed = [{"did": "lofar:L1.ms", "name": bad.replace("\n", "\\"), "variable": "INPUT_1"}]
    node.takes("lofar:L1.ms", stage_in="sh -c 'echo x > {path}/f'", datasets=listed, sites={})
    done = node.run("sh", "-c", "cat $INPUT_1")
    assert (done.returncode, done.stdout) == (0, "x\n")
    assert not list(node.scratch.rglob("pwned"))


# -------------------------------------------------------------------------------- interpreter, bytes, ends


@pytest.mark.parametrize(
    "program",
    [
        None,
        "#!/bin/sh\nexit 1\n",  # a broken installation: nothing can be imported
        "#!/nowhere/python3\n",
        "\x7fELF not really",
        "#!/bin/sh\ncase $* in *version_info*) exit 1 ;; esac\necho SyntaxError >&2\nexit 1\n",  # Python 2
    ],
)
def test_python_that_does_not_start_ends_the_job_with_85(node, program):
    fetching(node)
    bin_folder = node.scratch.parent / "bin"
    bin_folder.mkdir()
    if program:
        write_program(bin_folder / "python3", program)
    elif Path("/usr/libexec/platform-python").exists():
        pytest.skip("this machine has a platform-python")
    done = node.start(
        ["/bin/sh", node.wrapper(), "echo", "ran"],
        env={**node.environment, "PATH": str(bin_folder)},
    )
    assert (done.returncode, done.stdout) == (85, "")
    assert done.stderr.endswith("the job ends with 85 to run elsewhere\n")


def vanishing_python(folder: Path) -> Path:
    """A python3 that can be started only once: after that, sh itself fails."""
    folder.mkdir()
    write_program(folder / "python3", '#!/bin/sh\n/bin/rm "$0"\n')
    return folder


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(("script", "status"), [(FILE, 85), (HOOK_SCRIPT, 0)])
def test_failing_shell_ends_with_the_scripts_harmless_status(node, shell, script, status):
    (node.scratch / "classad-hydrator-hook").write_text("")
    copy = node.scratch / "script"
    shutil.copy(script, copy)
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here: it was not tried")
    path = vanishing_python(node.scratch.parent / "bin")
    done = subprocess.run(
        [program, copy, "true"], cwd=node.scratch, env={**node.environment, "PATH": str(path)}, check=False
    )
    assert done.returncode == status
    assert not list(path.iterdir())


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("there", "status"), [(True, 7), (False, 85)])
def test_closed_or_full_stderr_does_not_change_the_exit_status(node, redirect, there, status):
    node.takes("lofar:L1.ms")
    (node.scratch / "run.parset").write_bytes(PARSET)
    if there:
        node.holds("L1.ms")
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" --parset run.parset -- sh -c "exit 7" {redirect}', node.wrapper()],
        cwd=node.scratch,
        env=node.environment,
        check=False,
    )
    assert done.returncode == status


def test_non_utf8_environment_and_arguments_reach_the_command(node):
    node.takes_what_it_holds()
    environment = {os.fsencode(k): os.fsencode(v) for k, v in node.environment.items()}
    done = subprocess.run(
        [os.fsencode(node.wrapper()), b"sh", b"-c", b'printf "%s" "$ODD$0"', b"\xff\x01"],
        cwd=node.scratch,
        env={**environment, b"ODD": b"\xfe\n", b"DataLocalitySite": b"\xfd"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"\xfe\n\xff\x01")


def test_environment_entry_without_a_name_is_ignored(node):
    node.takes_what_it_holds()
    program = (
        "import ctypes, os, sys\n"
        "words = [os.fsencode(word) for word in sys.argv[1:]]\n"
        "entries = [os.fsencode(f'{k}={v}') for k, v in os.environ.items()] + [b'=nameless', b'bare']\n"
        "array = lambda texts: (ctypes.c_char_p * (len(texts) + 1))(*texts, None)\n"
        "ctypes.CDLL(None).execve(words[0], array(words), array(entries))\n"
    )
    done = node.start(
        [sys.executable, "-c", program, node.wrapper(), "echo", "ran"],
    )
    assert (done.returncode, done.stdout) == (0, "ran\n")


def test_invalid_answer_of_the_chirp_server_is_ignored(node):
    fetching(node)
    (node.scratch / ".chirp.config").write_text("127.0.0.1 99999999999999999999 secret\n")
    done = node.run("sh", "-c", "cat $INPUT_1/table.f0")
    assert (done.returncode, done.stdout) == (0, "x")


# ----------------------------------------------------------------------- every call to the system, in turn

INJECTOR = """
import builtins, errno, io, os, runpy, signal, socket, sys
spec = __import__("json").loads(os.environ.pop("FAULT"))
log = open(spec["log"], "w")
count = [0]
own = os.getpid()

def failing(name, real):
    def call(*args, **keywords):
        # import machinery and the fault's own log are not the wrapper's calls
        caller = sys._getframe(1).f_globals.get("__name__")
        if caller in ("__main__", "subprocess", "socket", "shutil", "os", "glob") and os.getpid() == own:
            count[0] += 1
            log.write(name + "\\n"); log.flush()
            if count[0] >= spec["at"] and (spec["lasting"] or count[0] == spec["at"]):
                if spec["error"] == "memory":
                    raise MemoryError()
                raise OSError(spec["error"], os.strerror(spec["error"]))
        return real(*args, **keywords)
    return call

import contextlib, glob, json, re, select, shlex, shutil, subprocess, time
for module, names in (
    (os, "pipe fork read write close listdir stat lstat mkdir mknod getcwd execve execvpe kill"),
    (os, "waitpid unlink rmdir open scandir killpg symlink"),
    (select, "select"), (socket, "socket create_connection"), (signal, "signal pthread_sigmask"),
    (subprocess, "Popen"), (builtins, "open"), (json, "loads"),
):
    for name in names.split():
        setattr(module, name, failing(name, getattr(module, name)))
sys.argv = [spec["wrapper"], *spec["words"]]
runpy.run_path(spec["wrapper"], run_name="__main__")
"""


def injected(
    node: Node, at: int, error: object, *, lasting: bool, python: str = sys.executable
) -> "tuple[int, str, str, int]":
    """Run the wrapper with the *at*-th call to the system failing; status, output, and calls made."""
    fetching(node)
    node.job.write_text('TransferOutput = "gone.txt"\n')
    log = node.scratch.parent / "calls"
    inputs = node.scratch / "hydrator-inputs"
    subprocess.run(["rm", "-rf", inputs, node.scratch / "gone.txt"], check=True)
    words = ["--parset", "run.parset", "--", "sh", "-c", "echo ran"]
    fault = {"at": at, "error": error, "lasting": lasting, "log": str(log)}
    done = run_program(
        [python, "-S", "-c", INJECTOR],
        cwd=node.scratch,
        env={**node.environment, "FAULT": json.dumps({**fault, "wrapper": str(FILE), "words": words})},
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr, len(log.read_text().splitlines())


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, "memory"])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("python", [sys.executable, *([PYTHON_3_6] if PYTHON_3_6 else [])])
def test_whichever_call_to_the_system_fails_the_job_runs_or_ends_with_85(node, error, lasting, python):
    status, output, _, calls = injected(node, 10**9, error, lasting=lasting, python=python)
    assert (status, output) == (0, "ran\n")
    assert calls > 20
    for at in range(1, calls + 1):
        status, output, complaint, _ = injected(node, at, error, lasting=lasting, python=python)
        assert (status, output) in ((0, "ran\n"), (85, "")), (at, status, complaint)
        assert "Traceback" not in complaint, at
        assert status == 0 or lasting or complaint.count("85 to run elsewhere\n") == 1, (at, complaint)
