"""Archives: the names that the LOFAR archive gives to tar files of measurement sets."""

import pytest

from hydrator.config import SubmitSettings
from hydrator.domain.model import Did
from hydrator.submit.dataset_names.resolver import resolve_names
from hydrator.submit.dataset_names.search import expand_globs
from hydrator.submit.file_lists import Listing
from hydrator.submit.job_wrapper import is_packed
from hydrator.submit.nearest_names import similar_names
from tests.unit.submit.test_dataset_resolver import catalogue, chosen, nothing_here, settings

CHECKSUM = "L775619_SB055_uv.MS_76a2361e.tar"
PREPARED = "L229673_SAP000_SB000_uv.MS_12487D6BAt_115MHz.pre-cal.ms.tar"
DOWNLOAD = "SRMFifoGet.py?surl=srm:%2F%2Fserver%2Flofar%2FL246403_SAP000_SB000_uv.MS_7d4aa18f.tar"
RAW = "L246403_SAP000_SB000_uv.MS_7d4aa18f.tar"
AVERAGED = "L229064_SAP000_SB003_uv.MS.dppp_1ef66b9a.tar"
OTHERS = ("a/b/L1.dppp.MS_0011AAFF.tar", "L2.ms.tar")
DIDS = [f"lofar:{name}" for name in (CHECKSUM, PREPARED, RAW, *OTHERS, AVERAGED)]


@pytest.mark.outside
@pytest.mark.parametrize(
    ("name", "archive"),
    [
        (f"/data/{CHECKSUM}", 0),
        ("/data/L775619_SB055_uv.MS", 0),
        ("/data/L775619_SB055_uv.MS/", 0),
        (PREPARED, 1),
        ("L229673_SAP000_SB000_uv.MS_12487D6BAt_115MHz.pre-cal.ms", 1),
        (f"/data/{DOWNLOAD}", 2),
        (f"https://server/x/SRMFifoGet.py?surl=srm://server:8443/lofar/{RAW}", 2),
        (f"srm://server:8443/lofar/{RAW}", 2),
        (f"srm://server:8443/srm/managerv2?SFN=/lofar/{RAW}", 2),
        (f"https://server/lofar/{RAW}?authz=abc/def", 2),
        ("L1.dppp.MS", 3),
        (AVERAGED, 5),
        ("/data/L229064_SAP000_SB003_uv.MS.dppp", 5),
    ],
)
def test_name_of_an_archive_or_of_its_measurement_set_is_found(name, archive):
    """Case S19 of cases/submit.md."""
    found = expand_globs([name], nothing_here, settings(), [catalogue(*DIDS)])
    assert chosen(resolve_names(found.names, settings(), [catalogue(*DIDS)])) == (DIDS[archive],)


@pytest.mark.outside
def test_archive_with_another_checksum_is_another_version():
    other = resolve_names(["L775619_SB055_uv.MS_99999999.tar"], settings("lofar"), [catalogue(*DIDS)])
    (problem,) = other.problems
    assert f"did you mean {DIDS[0]}?" in problem
    bare = resolve_names(["L9.MS_99999999.tar"], settings(), [catalogue("lofar:L9.MS.tar")])
    assert chosen(bare) == ("lofar:L9.MS.tar",)


@pytest.mark.outside
def test_two_archives_of_one_measurement_set_are_both_named():
    both = ["a:L1.MS_0000aaaa.tar", "a:L1.MS_1111bbbb.tar"]
    (problem,) = resolve_names(["L1.MS"], settings(), [catalogue(*both)]).problems
    assert ", ".join(both) in problem


@pytest.mark.outside
def test_glob_of_measurement_sets_finds_their_archives():
    """In the catalogue, or on this host beside which there are no measurement sets.

    Case S19 of cases/submit.md.
    """
    far = expand_globs(["/data/L*.MS"], nothing_here, settings(), [catalogue(*DIDS)])
    assert far.names == (
        "/data/L1.dppp.MS", "/data/L246403_SAP000_SB000_uv.MS", "/data/L775619_SB055_uv.MS",
    )  # fmt: skip
    here = {"/data/*.MS_*.tar": [f"/data/{CHECKSUM}", f"/data/{PREPARED}"]}
    near = expand_globs(["/data/*.MS"], lambda search: here.get(search, []), settings(), [])
    assert near.names == (f"/data/{CHECKSUM}",)


@pytest.mark.outside
def test_pattern_for_measurement_sets_translates_archives_too():
    sub_bands = {"match": "(L[0-9]+)_SB([0-9]+)_uv[.]MS", "did": "lofar:\\1/\\2"}
    configured = settings(patterns=[sub_bands])
    assert chosen(resolve_names([CHECKSUM], configured, [catalogue("lofar:L775619/055")])) == (
        "lofar:L775619/055",
    )


def test_did_of_a_measurement_set_is_similar_to_its_archive_and_three_are_named_at_most():
    known = [
        Did(did) for did in [*DIDS, "lofar:L775619_SB054_uv.MS_76a2361e.tar", "lofar:L775619_SB056_uv.MS"]
    ]
    assert similar_names(Did("lofar:L775619_SB055_uv.MS"), known) == (DIDS[0],)
    many = [Did(f"lofar:L{number}_SB001.ms") for number in range(1000, 1100)]
    assert similar_names(Did("lofar:l1050_sb001.ms"), many)[0] == "lofar:L1050_SB001.ms"
    assert len(similar_names(Did("lofar:L105_SB001.ms"), many)) == 3


@pytest.mark.parametrize(
    ("typed", "other", "is_similar"),
    [
        ("x:L667526_SB007_uv.ms", "x:L667526_SB207_uv.ms", False),
        ("x:L667526_SB007_uv.ms", "x:L667526_SB070_uv.ms", False),
        ("x:L667526_SB007_uv.ms", "x:L667528_SB007_uv.ms", False),
        ("x:L667526_SB7_uv.ms", "x:L667526_SB007_uv.ms", True),
        ("x:L66726_SB007_uv.ms", "x:L667526_SB007_uv.ms", True),
        ("x:L667526_SB00I_uv.ms", "x:L667526_SB001_uv.ms", True),
        ("x:L667526_SB0O7_uv.ms", "x:L667526_SB001_uv.ms", False),
        ("x:L667526_SB007_vu.ms", "x:L667526_SB007_uv.ms", True),
        ("x:L667526_SB007_uv", "x:L667526_SB007_uv.ms_76a2361e.tar", True),
        ("lofar:L1", "lofar:L9", False),
        ("lofar:L1", "lofar:M7", False),
        ("x:Casse", "x:Case", True),
        ("x:Casse", "x:Bread", False),
        ("x:Casse", "y:Case", False),
        ("x:Casse", "y:Casse", True),
        ("ska:other", "lofar:L1050_SB001.ms", False),
        (f"a:{'x' * 400}", f"a:{'x' * 401}", False),
    ],
)
def test_name_with_another_number_is_another_dataset_and_a_scope_makes_none_similar(typed, other, is_similar):
    """Cases S20, S27 of cases/submit.md."""
    assert similar_names(Did(typed), [Did(other)]) == ((Did(other),) if is_similar else ())


def test_job_asks_for_the_disk_that_archives_need_without_a_list_of_files():
    sizes = {Did(did): 10**number for number, did in enumerate([*DIDS, "lofar:L3.ms"])}
    found = Listing().archives(SubmitSettings().unpack, list(sizes), sizes)
    assert sum(file.bytes or 0 for file in found) == 111_111


@pytest.mark.parametrize(
    ("is_unpacked", "names"),
    [
        (True, [CHECKSUM, PREPARED, DOWNLOAD, AVERAGED, "L1_uv.MS.dppp.tar", "SB1.ms.dppp_12.tar"]),
        (False, ["L1_uv.MS", "L1_uv.MS.dppp", "L1.MS.dppp_1ef66b9a.tar.gz", "dppp.tar"]),
    ],
)
def test_job_unpacks_archives_by_default(tmp_path, is_unpacked, names):
    """Case S19 of cases/submit.md."""
    for name in names:
        (tmp_path / name).touch()
        assert is_packed(str(tmp_path / name), "x", SubmitSettings().unpack) is is_unpacked
