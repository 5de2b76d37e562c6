"""From names of measurement sets to DIDs."""

from pathlib import Path

import pytest

from adapters.memory import MemoryCatalogue
from hydrator.config import Settings, parse
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Did, Site
from hydrator.submit.dataset_names.globs import expand_globs
from hydrator.submit.dataset_names.resolver import resolve_names
from tests.factories import replica


def settings(scope: str | None = None, **submit) -> Settings:
    data = {
        "daemon": {"default_scope": scope} if scope else {},
        "catalogue": [{"type": "file", "path": "unused.toml"}],
        "submit": submit,
    }
    return parse(data, folder=Path("/"), origin="test")


def catalogue(*dids: str, name="rucio", sizes=None, **more) -> MemoryCatalogue:
    known = {Did(did): size for did, size in (sizes or {}).items()}
    return MemoryCatalogue(name, [replica(did, Site("UK")) for did in dids], bytes_total=known, **more)


def found(*names: str, dids=(), scope=None, **submit):
    return resolve_names(names, settings(scope, **submit), [catalogue(*dids)])


def nothing_here(_search: str) -> list[str]:
    return []


def test_a_name_is_found_by_its_last_part_whatever_folder_it_is_in():
    assert found("/data/x/L1.ms", "L2.ms", dids=["lofar:L1.ms", "lta:a/b/L2.ms"]).dids == (
        "lofar:L1.ms",
        "lta:a/b/L2.ms",
    )


def test_a_trailing_slash_and_tar_on_either_side_do_not_matter():
    held = ["lofar:L1.ms.tar", "lofar:L2.ms", "lofar:L3.ms"]
    assert found("/x/L1.ms/", "L2.ms.tar", "L3.ms//", dids=held).dids == tuple(held)


def test_of_a_folder_and_its_tar_the_one_that_is_spelled_alike_is_meant():
    held = ["lofar:L1.ms", "lofar:L1.ms.tar"]
    assert found("L1.ms", dids=held).dids == ("lofar:L1.ms",)
    assert found("L1.ms.tar", dids=held).dids == ("lofar:L1.ms.tar",)


def test_letter_case_counts():
    resolution = found("l1.ms", dids=["lofar:L1.ms"])
    assert resolution.dids == (None,)
    assert "l1.ms" in resolution.unknown_names


def test_the_table_comes_first_then_patterns_then_catalogues():
    resolution = found(
        "/x/special.ms",
        "L1_SB7_uv.ms",
        "plain.ms",
        dids=["t:s", "lofar:L1_7", "lofar:plain.ms", "lofar:special.ms", "lofar:L1_SB7_uv.ms"],
        names={"special.ms": "t:s"},
        patterns=[{"match": "(L[0-9]+)_SB([0-9]+).*[.]ms", "did": "lofar:\\1_\\2"}],
    )
    assert resolution.dids == ("t:s", "lofar:L1_7", "lofar:plain.ms")
    assert resolution.problems == []


def test_a_name_that_is_a_did_is_taken_at_its_word():
    assert found("lofar:a/L1.ms", dids=["lofar:a/L1.ms", "x:L1.ms"]).dids == ("lofar:a/L1.ms",)


def test_the_default_scope_settles_what_several_scopes_hold():
    held = ["a:L1.ms", "b:L1.ms"]
    assert found("L1.ms", dids=held).ambiguous_names == {"L1.ms": ("a:L1.ms", "b:L1.ms")}
    assert found("L1.ms", dids=held, scope="b").dids == ("b:L1.ms",)
    assert found("L2.ms", dids=["a:L2.ms"], scope="b").dids == ("a:L2.ms",)


def test_everything_that_is_wrong_is_told_at_once():
    resolution = found("L1.ms", "L2.ms", "L3.ms", "bad name.ms", dids=["a:L1.ms", "b:L1.ms", "a:L3.ms"])
    assert resolution.dids == (None, None, "a:L3.ms", None)
    told = resolution.problems
    assert len(told) == 3
    assert "a:L1.ms, b:L1.ms" in told[0]
    assert told[1].startswith("L2.ms: no catalogue has a dataset of that name")
    assert told[2].startswith("bad name.ms: ")


def test_a_did_of_the_table_that_no_catalogue_holds_is_unknown_but_named():
    resolution = found("L1.ms", dids=["a:other"], names={"L1.ms": "a:gone"})
    assert resolution.dids == ("a:gone",)
    assert resolution.unknown_names["L1.ms"].startswith(
        "a:gone is in no catalogue; another name goes into [submit]"
    )


def test_a_catalogue_that_is_away_leaves_datasets_unchecked_not_unknown():
    up, down = catalogue("a:L1.ms"), catalogue(name="dmapi", is_broken=True)
    resolution = resolve_names(["L1.ms", "L2.ms"], settings("a"), [up, down])
    assert resolution.dids == ("a:L1.ms", "a:L2.ms")
    assert resolution.unchecked_dids == {"a:L2.ms"}
    assert list(resolution.unreachable_catalogues) == ["dmapi"]
    assert resolution.unknown_names == {}


def test_without_a_scope_a_name_that_nobody_could_look_up_says_who_was_away():
    resolution = resolve_names(["L2.ms"], settings(), [catalogue(name="dmapi", is_broken=True)])
    assert resolution.dids == (None,)
    assert "dmapi did not answer" in resolution.unknown_names["L2.ms"]


def test_sizes_are_the_largest_that_a_catalogue_tells():
    one = catalogue("a:L1.ms", sizes={"a:L1.ms": 5})
    two = catalogue("a:L1.ms", name="two", sizes={"a:L1.ms": 7})
    assert resolve_names(["L1.ms"], settings(), [one, two]).sizes == {"a:L1.ms": 7}


def test_two_names_for_one_dataset_are_seen():
    resolution = found("/a/L1.ms", "/b/L1.ms", dids=["a:L1.ms"])
    assert resolution.names_by_shared_did == {"a:L1.ms": ("/a/L1.ms", "/b/L1.ms")}
    assert found("/a/L1.ms", "/a/L1.ms", dids=["a:L1.ms"]).names_by_shared_did == {}


def test_names_that_are_globs_in_a_catalogue_are_not_taken_for_globs():
    assert found("L[1].ms", names={"L[1].ms": "a:x"}, dids=["a:x"]).dids == ("a:x",)
    assert found("L*.ms", dids=["a:L1.ms"]).dids == (None,)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ({"match": "(", "did": "a:b"}, "submit.patterns[0].match"),
        ({"match": "(x)", "did": "a:\\2"}, "submit.patterns[0].did"),
        ({"match": "(?P<n>x)", "did": "a:\\g<m>"}, "submit.patterns[0].did"),
    ],
)
def test_a_pattern_that_cannot_work_is_a_configuration_error(pattern, told):
    with pytest.raises(ConfigError, match=r"submit\.patterns") as refused:
        found("x", patterns=[pattern])
    assert told in str(refused.value)


def test_a_pattern_that_makes_no_did_names_the_measurement_set():
    with pytest.raises(ConfigError, match=r"gives an invalid DID for a b\.ms"):
        found("a b.ms", patterns=[{"match": "(.*)", "did": "a:\\1"}])


def test_244_names_take_few_questions():
    asked: list[int] = []

    class Counting(MemoryCatalogue):
        def find(self, patterns):
            asked.append(len(patterns))
            return super().find(patterns)

    dids = [f"lofar:L667526_SB{n:03}_uv.ms" for n in range(244)]
    names = [f"/data/{did.partition(':')[2]}" for did in dids]
    counting = Counting("rucio", [replica(did) for did in dids])
    assert resolve_names(names, settings(), [counting]).dids == tuple(dids)
    assert len(asked) == 1
    assert asked[0] <= 16


# --- globs


def expanded(*searches: str, dids=(), local=nothing_here, **submit):
    return expand_globs(searches, local, settings(**submit), [catalogue(*dids)])


def test_a_glob_that_matches_here_is_what_it_matches():
    here = expanded("/d/*.ms", local=lambda _: ["/d/b.ms", "/d/a.ms"], dids=["a:c.ms"])
    assert here.names == ("/d/a.ms", "/d/b.ms")
    assert here.catalogue_counts == {}


def test_a_glob_that_matches_nothing_here_stands_for_what_the_catalogues_hold():
    far = expanded("/d/L1_*.ms", dids=["a:L1_2.ms", "a:x/L1_1.ms.tar", "a:L2_1.ms", "a:.L1_9.ms"])
    assert far.names == ("/d/L1_1.ms", "/d/L1_2.ms")
    assert far.catalogue_counts == {"/d/L1_*.ms": 2}


def test_a_glob_looks_in_the_default_scope_first_and_elsewhere_only_when_that_has_nothing():
    held = [catalogue("a:L1.ms", "b:L2.ms", "b:M1.ms")]
    assert expand_globs(["L*.ms", "M*.ms"], nothing_here, settings("a"), held).names == ("L1.ms", "M1.ms")


SUBBANDS = {"match": "(L[0-9]+)_SB([0-9]+).*[.]ms", "did": "lofar:\\1_SB\\2"}


def test_a_glob_finds_datasets_by_the_patterns_that_make_their_names():
    held = ["lofar:L1_SB001", "lofar:L1_SB002", "lofar:L2_SB001", "ska:L1_SB003", "lofar:L1_other"]
    far = expanded("/d/L1_*.ms", dids=held, patterns=[SUBBANDS])
    assert far.names == ("/d/L1_SB001.ms", "/d/L1_SB002.ms")
    assert far.catalogue_counts == {"/d/L1_*.ms": 2}
    resolved = resolve_names(far.names, settings(patterns=[SUBBANDS]), [catalogue(*held)])
    assert resolved.dids == ("lofar:L1_SB001", "lofar:L1_SB002")


def test_a_glob_with_a_head_and_named_groups_finds_by_patterns_too():
    named = {"match": "obs_(?P<n>[0-9]+)[.]MS", "did": "\\g<n>"}
    far = expanded("/d/obs_*.MS", dids=["lofar:17", "lofar:x"], patterns=[named])
    assert far.names == ()
    scoped = expand_globs(
        ["/d/obs_*.MS"], nothing_here, settings("lofar", patterns=[named]), [catalogue("lofar:17")]
    )
    assert scoped.names == ("/d/obs_17.MS",)


def test_a_glob_that_no_pattern_leads_to_stays_empty():
    assert expanded("/d/M*.ms", dids=["lofar:L1_SB001"], patterns=[SUBBANDS]).unmatched_globs == ("/d/M*.ms",)


def test_a_glob_also_finds_the_names_of_the_table():
    assert expanded("/d/L*.ms", names={"L1.ms": "a:odd"}).names == ("/d/L1.ms",)


def test_a_glob_that_matches_nothing_anywhere_is_told():
    assert expanded("/d/X*.ms", dids=["a:L1.ms"]).unmatched_globs == ("/d/X*.ms",)


def test_a_name_without_wildcards_stands_for_itself():
    assert expanded("/d/L1.ms", "/d/L0.ms/").names == ("/d/L0.ms/", "/d/L1.ms")


def test_a_catalogue_that_is_away_while_globs_are_looked_up_is_told():
    far = expand_globs(["/d/*.ms"], nothing_here, settings(), [catalogue(name="dmapi", is_broken=True)])
    assert list(far.unreachable_catalogues) == ["dmapi"]
