"""Job wrapper: its pure parts by import, and what the submit side makes of its reports."""

import ast
import os
import re
from types import SimpleNamespace
from typing import Any

import pytest

from hydrator.domain.model import Did, Site, from_unix
from hydrator.reconcile import misses
from hydrator.submit import job_wrapper as job_start
from hydrator.submit.job_wrapper import Dataset, WrapperError
from tests.archives import tar_of
from tests.tables import table, write
from tests.unit.submit.test_job_wrapper import FILE
from tests.unit.submit.test_job_wrapper_files import L1

NOW = 1_763_690_400


def test_wrapper_and_submit_side_have_equal_constants():
    assert job_start.RETRY_STATUS == misses.MISSED_EXIT_STATUS
    for attribute in (misses.MISSES_ATTRIBUTE, misses.SITES_ATTRIBUTE, misses.AVOID_UNTIL_ATTRIBUTE):
        assert f'"{attribute}"' in FILE.read_text()


@pytest.mark.parametrize(
    ("machine", "filled", "told"),
    [
        ({"cpus": "16", "memory": "65536"}, "16 2 4 64", ["c = 96", "w = 9", "m = 99"]),
        ({"cpus": "4.0", "memory": "512"}, "4 1 4 1", ["c = 96", "w = 9", "m = 99"]),
        ({"cpus": "96"}, "96 9 4 99", []),
    ],
)
def test_parset_gets_the_size_of_the_slot(machine, filled, told):
    parset = b"c = {cores:96}\nw = {cores/8:9}\ns = {cores:4}\nm = {memory_gb:99}\ni = {input_ms}\n"
    got, changes = job_start.fill_parset(parset, [], "/scratch", machine)
    assert " ".join(line.split(" = ")[1] for line in got.decode().splitlines()[:4]) == filled
    assert [change.partition(" is now ")[0] for change in changes] == told


def test_parset_gets_paths_that_rapthor_does_not_read_as_globs():
    parset = b"input_ms = {input_ms}\nx = \xff{scratch}\n"
    got, _ = job_start.fill_parset(parset, ["/a b/\u00e9.ms", "/c[1]*.ms", "/{scratch}"], "/s", {})
    first, second = got.splitlines()
    assert ast.literal_eval(first.decode()[11:]) == ["/a b/\u00e9.ms", "/c[[]1][*].ms", "/{scratch}"]
    assert second == b"x = \xff/s"


def test_parset_without_input_ms_is_rejected():
    with pytest.raises(WrapperError, match="has no"):
        job_start.fill_parset(b"[cluster]\ninput_ms = a\n", ["/x"], "/s", {})


# ------------------------------------------------------------------------------------------ which site


def test_site_comes_from_the_slot_ad_then_its_glidein_attributes(tmp_path):
    def site(text: str) -> str:
        (tmp_path / "ad").write_text(text)
        environ = {"_CONDOR_MACHINE_AD": str(tmp_path / "ad")}
        return job_start.find_site(["GLIDEIN_B", "GLIDEIN_A"], environ)

    both = 'GLIDEIN_A = "a"\nglidein_b = "b"\n'
    assert site(both + 'DataLocalitySite = "uk"\n') == "uk"
    assert site(both) == "b"
    assert site('GLIDEIN_A = "a"\nGLIDEIN_B = "None"\n') == "a"
    assert site("Cpus = 1\n") == ""


def test_attributes_written_into_the_job_ad_have_bounded_length():
    dids = [f"lofar:{'L' * 400}{n}" for n in range(50)]
    text = job_start.miss_text("UK", dids, NOW)
    assert text.endswith("+49 UK")
    longest = job_start.miss_text("s" * 300, ["a:" + "n" * 498], NOW)
    for items in ([text] * 9, ["s" * 100] * 50, [longest]):
        _, value = job_start.prepend_items("X", items, {})
        assert len(value) < 900


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ("([ 'a:1' = \"AVAILABLE\" ])", True),
        ("[ 'a:11' = \"AVAILABLE\"; 'a:1' = \"STAGING\" ]", False),
        ("['x'=\"STAGING\";'a:1'=\"AVAILABLE\"]", True),
        ("[ 'ba:1' = \"AVAILABLE\" ]", False),
        ("", False),
    ],
)
def test_advertised_state_is_read_by_exact_dataset_name(tmp_path, states, said):
    (tmp_path / "ad").write_text(f"DatasetStates = {states}\n")
    environ = {"_CONDOR_MACHINE_AD": str(tmp_path / "ad")}
    attributes = dict(job_start.fetched_attributes("UK", ["a:1"], [], environ, NOW))
    assert ("ChirpDataLocalityMisses" in attributes) is said


@pytest.mark.parametrize(
    ("named", "others", "size", "source"),
    [
        ("", ["NL"], 200_000_000, "NL"),
        ("", ["NL", "DE"], 200_000_000, None),
        ("DE", ["NL"], 200_000_000, "DE"),
        ("UK", [], 200_000_000, None),
        ("D:E", [], 200_000_000, None),
        ('D\\"E', [], 200_000_000, "DE"),
        ("NL", [], 99_999_999, None),
    ],
)
def test_rate_of_a_large_fetched_dataset_is_reported_if_its_source_is_known(
    tmp_path, named, others, size, source
):
    (tmp_path / "f").touch()
    os.truncate(tmp_path / "f", size)
    job: Any = SimpleNamespace(places={site: {L1: "/x"} for site in ("UK", *others)})
    reports = job_start.read_report(L1, job, named, "UK", str(tmp_path), 2)
    wanted = rf"{source}:{size}:2\.0:\d+:UK" if source else ""
    assert re.fullmatch(wanted, "".join(reports))


# ------------------------------------------------------------------------------------- the submit side


def test_misses_are_parsed_from_the_job_ad_and_other_texts_skipped():
    job = {
        misses.MISSES_ATTRIBUTE: [
            "20 b:2,a:1,+4 U K",
            "10 a:1 NL",
            "x a:1 NL",
            "30 a:1",
            "40 no_scope,a:ü NL",
            "",
            7,
        ]
    }
    assert misses.parse_misses(job) == (
        misses.Miss(Site("NL"), Did("a:1"), from_unix(10)),
        misses.Miss(Site("U K"), Did("a:1"), from_unix(20)),
        misses.Miss(Site("U K"), Did("b:2"), from_unix(20)),
    )
    assert misses.parse_misses({}) == ()
    assert misses.parse_misses({misses.MISSES_ATTRIBUTE: "10 a:1 NL"}) == ()


def test_variable_of_a_dataset_must_be_a_shell_name():
    dataset = Dataset(3, {"did": "lofar:L1-2.ms", "name": "/x/L1-2.ms/"})
    assert dataset.variables == ("INPUT_3", "INPUT_L1_2_ms")


# ------------------------------------------------------------------------------- tables and archives


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"table.dat": table(5), "table.f0": b"x", "table.f0i": b"x", "table.f1_TSM0": b"x"}, ""),
        *(
            ({"table.dat": broken, "table.f0": b"x"}, "table.dat is empty, cut or not the description")
            for broken in (b"", table(5)[:15], table(5)[:-1], table(None), b"<html>")
        ),
        ({"table.dat": table(5)[:15]}, "table.dat is empty, cut or not"),
        ({"table.dat": table(None)}, ""),  # another program's
        ({"table.dat": table(5)}, "table.dat describes rows, but there is no column file"),
        ({"table.dat": table(0)}, ""),
        ({"table.dat": table(5), "table.mf": b"x"}, ""),
        ({"table.dat": table(5), "table.mf": b""}, "table.mf is empty"),
        ({"table.dat": table(5, "MemoryStMan")}, ""),
        ({"table.dat": table(5).replace(b"PlainTable", b"RefTableXX")}, ""),
        ({"table.dat": table(0, subtables=("FIELD", "SORTED_TABLE"))}, "table.dat has a subtable FIELD"),
        ({"table.f0": b"x"}, "table.f0 is data of a casacore table without table.dat"),
        ({"table.dat": table(5), "table.f0": b""}, "table.f0 is empty, and the table has rows"),
        ({"table.dat": table(5, version=3), "table.f0": b""}, "table.f0 is empty"),
        ({"table.dat": table(5), "table.f0": b"x", "table.f0i": b""}, "table.f0i is empty"),
        ({"table.dat": table(5), "table.f10_TSM1": b""}, "table.f10_TSM1 is empty"),
        ({"table.dat": table(0), "table.f0": b"", "table.f1_TSM0": b""}, ""),
        ({"table.dat": table(0, version=3), "table.f1_TSM0": b""}, ""),
        ({"table.dat": table(5, "TiledCellStMan"), "table.f0": b"x", "table.f0_TSM0": b""}, ""),
        ({"table.dat": table(5, "TiledCellStMan"), "table.f0": b""}, "table.f0 is empty"),
        ({"table.dat": table(5), "table.f0": b"x", "table.lock": b"", "table.f0data": b""}, ""),
    ],
)
@pytest.mark.parametrize("folder", ["", "ANTENNA"])
def test_broken_table_is_a_miss(tmp_path, folder, files, problem):
    write(tmp_path, {"table.dat": table(0)})
    write(tmp_path / folder, files)
    if not folder and "table.dat" not in files:
        (tmp_path / "table.dat").unlink()
    found, _ = job_start.check_files(job_start.list_files(str(tmp_path)), None, int)
    assert found.startswith(f"{tmp_path / folder}/{problem}") if problem else found == ""


def test_archive_with_too_many_members_is_not_unpacked(tmp_path):
    path = tmp_path / "many.tar"
    path.write_bytes(tar_of({f"{n}/table.dat": b"" for n in range(5)}))
    archive = job_start.Archive(str(path), L1)
    archive.max_members = 6
    assert archive.size() == 0
    archive.max_members = 4
    with pytest.raises(job_start.WrapperError, match="more than 4 members"):
        archive.size()
