"""The parset reader of this project and Rapthor's own, from PyPI: the same results, the same errors."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hydrator.domain.errors import ConfigError
from hydrator.submit.rapthor.machine import job_parset
from hydrator.submit.rapthor.parset import parse_parset
from testbed.rapthor import RapthorReader
from tests.parts import needs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SETS = (
    "a.ms",
    "b.ms",
    "L1_SB1.ms",
    "L1_SB2.ms",
    "with space.ms",
    "a, b.ms",
    "12h",
    "x[1].ms",
    "q'uote.ms",
    ".hidden.ms",
)
FORMS = (
    "{here}/*.ms",
    "{here}/L1_SB[12].ms/",
    "[{here}/b.ms, {here}/a.ms]",
    "[{here}/L1*.ms,\n  {here}/a.ms,]",
    '["{here}/a.ms", "{here}/b.ms"]',
    '"{here}/a.ms", "{here}/b.ms"',
    '"{here}/a, b.ms"',
    "{here}/a, b.ms",
    "*.ms",
    "12h",
    "[12h, a.ms]",
    "a.ms # no comment",
    "[[a.ms, b.ms]]",
    "{here}/x[[]1].ms",
    "%(input)s",
    "$HOME/*.ms",
    "",
    "[]",
    "{{}}",
    "12",
    "b'a.ms'",
    "{here}/nothing*.ms",
)
WHOLE = (
    b"[global]\ndir_working = run\n",
    b"[GLOBAL]\ndir_working = run\ninput_ms = a.ms\n",
    b"[global]\nDir_Working = run\nINPUT_MS : a.ms\n",
    b"[DEFAULT]\ninput_ms = a.ms\n[global]\ndir_working = run\n",
    b"[global]\ndir_working = run\ninput_ms = a.ms\ninput_ms = b.ms\n",
    b"[global]\ndir_working = run\n[global]\ninput_ms = b.ms\n",
    b"[global]\ndir_working = run\ninput_ms\n",
    b"[global]\r\ndir_working = run\r\ninput_ms = a.ms\r\n",
    b"[global]\rdir_working = run\rinput_ms = a.ms\r",
    b"\xef\xbb\xbf[global]\ndir_working = run\ninput_ms = a.ms\n",
    b"[global]\ndir_working = run\ninput_ms = caf\xe9.ms\n",
    b"[global]\ndir_working = run\n# input_ms = b.ms\n; x\ninput_ms = a.ms\n\n  b.ms\n[x]\ny=1\n",
)


@pytest.fixture(scope="module")
def rapthor() -> Iterator[RapthorReader]:
    with needs("Rapthor"):
        reader = RapthorReader.start()
    with reader:
        yield reader


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    """Create a folder with measurement sets, in which both readers work."""
    folder = tmp_path_factory.mktemp("data")
    for name in SETS:
        (folder / name).mkdir()
    return folder


def ours(content: bytes, folder: Path) -> list[str] | None:
    """Return the measurement sets that this project reads on a host that has them; None for an error."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        searches = parse_parset(content, "run.parset").input_globs
        return sorted(name for search in searches for name in glob.glob(search)) or None  # noqa: PTH207
    except ConfigError:
        return None
    finally:
        os.chdir(before)


def compare(rapthor: RapthorReader, content: bytes, folder: Path) -> None:
    parset = folder / "run.parset"
    parset.write_bytes(content)
    theirs = rapthor.read(parset, folder)
    assert ours(content, folder) == (None if isinstance(theirs, str) else theirs), theirs


def with_input(text: str) -> bytes:
    return f"[global]\ndir_working = run\ninput_ms = {text}\n".encode()


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input_ms_is_read_as_by_rapthor(rapthor, here, form):
    compare(rapthor, with_input(form.format(here=here)), here)


@pytest.mark.parametrize("content", WHOLE)
def test_complete_parset_is_read_or_rejected_as_by_rapthor(rapthor, here, content):
    compare(rapthor, content, here)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.text(alphabet="abms.*?[]!-_,/'\"{}() 12hdL#;=:%$\\\t", max_size=30),
        st.lists(
            st.sampled_from(["a.ms", "*.ms", '"b.ms"', "L1*", "'a.ms'", " ", "12", "x"]), max_size=4
        ).map(lambda items: f"[{', '.join(items)}]"),
    )
)
def test_random_input_ms_is_read_as_by_rapthor(rapthor, here, text):
    compare(rapthor, with_input(text), here)


def test_rapthor_reads_the_parset_that_is_sent_with_a_job(rapthor, here):
    """The test fills in by hand the values that the wrapper fills in at the site."""
    given_parset = parse_parset(with_input("*.ms") + b"[cluster]\nbatch_system = slurm\n", "run.parset")
    text, _ = job_parset(given_parset, {})
    travels = text.replace("{scratch}", str(here)).replace("{input_ms}", "*.ms")
    travels = travels.replace("{cores}", "1").replace("{memory_gb}", "2")
    (here / "travels.parset").write_text(travels)
    assert rapthor.read(here / "travels.parset", here) == ours(with_input("*.ms"), here)
