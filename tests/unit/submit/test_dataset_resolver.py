"""Dataset resolver: the DIDs of the names of measurement sets."""

from dataclasses import replace
from pathlib import Path

import pytest

from hydrator.config import Settings, parse
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Site, Unseen
from hydrator.submit.dataset_names.resolver import Resolution, resolve_names
from hydrator.submit.dataset_names.search import expand_globs
from tests.factories import replica
from tests.memory import MemoryCatalogue

pytestmark = pytest.mark.outside


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


def chosen(resolution: Resolution) -> tuple[str | None, ...]:
    return tuple(resolution.dids.values())


def nothing_here(_search: str) -> list[str]:
    return []


def test_name_resolves_by_its_last_part_in_any_folder():
    assert chosen(found("/data/x/L1.ms", "L2.ms", dids=["lofar:L1.ms", "lta:a/b/L2.ms"])) == (
        "lofar:L1.ms",
        "lta:a/b/L2.ms",
    )


def test_name_resolves_with_or_without_trailing_slash_and_tar():
    held = ["lofar:L1.ms.tar", "lofar:L2.ms", "lofar:L3.ms"]
    assert chosen(found("/x/L1.ms/", "L2.ms.tar", "L3.ms//", dids=held)) == tuple(held)


def test_exact_name_wins_over_the_same_name_with_tar():
    held = ["lofar:L1.ms", "lofar:L1.ms.tar"]
    assert chosen(found("L1.ms", dids=held)) == ("lofar:L1.ms",)
    assert chosen(found("L1.ms.tar", dids=held)) == ("lofar:L1.ms.tar",)


def test_name_lookup_respects_letter_case():
    resolution = found("l1.ms", dids=["lofar:L1.ms"])
    assert chosen(resolution) == (None,)
    assert "l1.ms" in resolution.unknown_names


SUB_BANDS = [{"match": "(L[0-9]+)_SB([0-9]+).*[.]ms", "did": "lofar:\\1_\\2"}]


def test_names_table_precedes_catalogues_and_these_precede_patterns():
    resolution = found(
        "/x/special.ms",
        "L1_SB7_uv.ms",
        "L1_SB8_uv.ms",
        "L1_SB9_uv.ms",
        "x:L1_SB9_uv.ms",
        dids=[
            "t:s",
            "lofar:special.ms",
            *(f"lofar:L1_{n}" for n in (7, 8, 9)),
            "x:L1_SB8_uv.ms",
            "x:L1_SB9_uv.ms",
            "y:L1_SB9_uv.ms",
        ],
        names={"special.ms": "t:s"},
        patterns=SUB_BANDS,
    )
    assert chosen(resolution) == ("t:s", "lofar:L1_7", "x:L1_SB8_uv.ms", "lofar:L1_9", "x:L1_SB9_uv.ms")
    assert resolution.problems == []


def test_name_that_is_a_did_resolves_to_itself():
    assert chosen(found("lofar:a/L1.ms", dids=["lofar:a/L1.ms", "x:L1.ms"])) == ("lofar:a/L1.ms",)


def test_default_scope_decides_between_datasets_of_several_scopes():
    held = ["a:L1.ms", "b:L1.ms"]
    assert found("L1.ms", dids=held).ambiguous_names == {"L1.ms": ("a:L1.ms", "b:L1.ms")}
    assert chosen(found("L1.ms", dids=held, scope="b")) == ("b:L1.ms",)
    assert chosen(found("L2.ms", dids=["a:L2.ms"], scope="b")) == ("a:L2.ms",)


def test_resolver_reports_all_problems_at_once():
    resolution = found("L1.ms", "L2.ms", "L3.ms", "bad name.ms", dids=["a:L1.ms", "b:L1.ms", "a:L3.ms"])
    assert chosen(resolution) == (None, None, "a:L3.ms", None)
    messages = resolution.problems
    assert len(messages) == 3
    assert "a:L1.ms, b:L1.ms: write the one that you mean" in messages[0]
    assert messages[1].startswith("L2.ms: no catalogue has a dataset of that name")
    assert messages[2].startswith("bad name.ms: ")


def test_did_of_the_names_table_in_no_catalogue_is_unknown_but_named():
    resolution = found("L1.ms", dids=["a:other"], names={"L1.ms": "a:gone"})
    assert chosen(resolution) == ("a:gone",)
    assert resolution.unknown_names["L1.ms"].startswith(
        "a:gone is in no catalogue; if you mean another dataset, add the name to [submit]"
    )


def test_unreachable_catalogue_leaves_datasets_unchecked_not_unknown():
    up, down = catalogue("a:L1.ms"), catalogue(name="dmapi", is_broken=True)
    resolution = resolve_names(["L1.ms", "L2.ms"], settings("a"), [up, down])
    assert chosen(resolution) == ("a:L1.ms", "a:L2.ms")
    assert resolution.unchecked_dids == {"a:L2.ms"}
    assert resolution.unanswered_dids == {"a:L1.ms", "a:L2.ms"}, "the other catalogue may have more replicas"
    assert list(resolution.unreachable_catalogues) == ["dmapi"]
    assert resolution.unknown_names == {}


def test_daemon_that_is_asked_too_does_not_decide_what_exists():
    down = catalogue(name="daemon", is_broken=True)
    resolution = resolve_names(["L1.ms"], settings("a"), [catalogue("a:L1.ms")], [down])
    assert (resolution.unanswered_dids, resolution.unreachable_catalogues) == (frozenset(), {})
    assert list(resolution.answers) == ["rucio", "daemon"]


def test_unresolved_name_lists_the_catalogues_that_did_not_answer():
    resolution = resolve_names(["L2.ms"], settings(), [catalogue(name="dmapi", is_broken=True)])
    assert chosen(resolution) == (None,)
    assert "dmapi did not answer" in resolution.unknown_names["L2.ms"]


class Daemon(MemoryCatalogue):
    """A daemon that searches its catalogue, and whose jobs have named no dataset yet."""

    def read(self, dids):
        survey = super().read(dids)
        return replace(survey, readings=dict.fromkeys(dids, Unseen("no job has named it")))


def found_by_daemon(*names: str, dids=(), scope=None, **more):
    daemon = Daemon("daemon", [replica(did, Site("UK")) for did in dids], **more)
    return resolve_names(names, settings(scope), [], [daemon])


def test_name_is_found_in_the_catalogues_of_a_daemon():
    resolution = found_by_daemon("/x/L2.MS", "x:L3.MS", dids=["lofar:L2.MS_0011aaff.tar", "x:L3.MS"])
    assert chosen(resolution) == ("lofar:L2.MS_0011aaff.tar", "x:L3.MS")
    assert resolution.unknown_names == {}
    assert resolution.unchecked_dids == {"lofar:L2.MS_0011aaff.tar", "x:L3.MS"}, "no site is known"


def test_daemon_searches_only_the_default_scope():
    """For a pattern of any scope Rucio lists every name, and the daemon searches for all users."""
    asked: list[str] = []

    class Noting(Daemon):
        def find(self, patterns):
            asked.extend(patterns)
            return super().find(patterns)

    resolve_names(["L2.MS"], settings("a"), [], [Noting("daemon", [replica("b:L2.MS")])])
    expand_globs(["L*.MS"], nothing_here, settings("a"), [Noting("daemon", [])], is_daemon=True)
    assert [pattern for pattern in asked if not pattern.startswith("a:")] == []
    assert chosen(found("L2.MS", dids=["b:L2.MS"], scope="a")) == ("b:L2.MS",), "a catalogue: in any scope"


def test_name_that_a_daemon_does_not_find_is_unlisted_and_has_similar_ones():
    """A search finds neither files nor private datasets, so the name may exist."""
    six = [f"a:L{number}.ms" for number in range(6)]
    resolution = found_by_daemon(*six, "L7.ms", "L8.ms", dids=["a:L7.MS", *six], scope="a")
    assert resolution.unknown_names == {}
    assert resolution.unlisted_dids == {"a:L7.ms": ("a:L7.MS",), "a:L8.ms": ()}
    assert resolution.unchecked_dids >= {"a:L7.ms", "a:L8.ms"}


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("a:L7_SB055_uv.MS.tar", "a:L7_SB055_uv.MS"),  # a single file
        ("a:L7_SB055_private.MS", "a:L7_SB055_privat.MS"),
    ],
)
def test_single_files_and_private_names_beside_listed_ones_are_not_refused(name, near):
    resolution = found_by_daemon(name, dids=[near])
    assert (chosen(resolution), resolution.problems) == ((name,), [])
    assert resolution.unlisted_dids == {name: (near,)}


@pytest.mark.parametrize("name", ["L775619_SB055_uv.MS", "L775619_SB055_uv.MS_76a2361e.tar"])
def test_archive_that_is_a_single_file_in_rucio_is_found_and_listed(name):
    class Rucio(Daemon):
        def find(self, patterns):
            return super().find([pattern for pattern in patterns if pattern.endswith(".tar")])

    archive = "a:L775619_SB055_uv.MS_76a2361e.tar"
    resolution = resolve_names([name], settings("a"), [], [Rucio("daemon", [replica(archive)])])
    assert (chosen(resolution), resolution.unlisted_dids) == ((archive,), {})


def test_daemon_that_cannot_search_leaves_names_unchecked():
    resolution = found_by_daemon("L7.ms", dids=["a:L7.MS"], scope="a", is_broken=True)
    assert list(resolution.unreachable_catalogues) == ["daemon"]
    assert resolution.unchecked_dids == {"a:L7.ms"}
    assert resolution.unlisted_dids == {}
    assert resolution.unknown_names == {}


@pytest.mark.parametrize("name", ["a:L7.ms", "L7_SB1.ms"])
def test_search_that_fails_says_nothing_about_a_did_or_what_a_pattern_gives(name):
    class Deaf(Daemon):
        def find(self, patterns):
            raise CatalogueError(self.name, "busy")

    patterns = [{"match": "(L7)_SB1.ms", "did": "a:\\1.ms"}]
    deaf = Deaf("daemon", [replica("a:L7.MS")])
    resolution = resolve_names([name], settings(patterns=patterns), [], [deaf])
    assert (resolution.unchecked_dids, resolution.unreachable_catalogues) == ({"a:L7.ms"}, {})
    assert resolution.unlisted_dids == {}


def test_names_with_the_same_problem_share_one_sentence():
    (problem,) = found("b.ms", "a.ms", "c.ms", "a.ms").problems
    assert problem.startswith("b.ms, a.ms, c.ms: ")
    assert "set default_scope" in problem


@pytest.mark.parametrize(("scope", "typed"), [(None, "/d/SB00I"), ("a", "SB00I"), (None, "a:SB00I")])
def test_misspelt_name_with_or_without_a_scope_is_asked_about(scope, typed):
    (problem,) = found(typed, dids=["a:SB001", "a:SB011"], scope=scope).problems
    assert problem.startswith(f"{typed}: ")
    assert problem.endswith("; did you mean a:SB001?")
    many = found(*(f"M{number}" for number in range(6)), dids=["a:M01"])
    assert "did you mean" not in "".join(many.problems), "it is the scope that lacks"


def test_name_of_a_scope_without_it_is_searched_in_the_other_scopes():
    (problem,) = found("lofra:L1234.ms", dids=["lofar:L1234.ms"]).problems
    assert problem.endswith("lofra:L1234.ms is in no catalogue; did you mean lofar:L1234.ms?")


@pytest.mark.parametrize("name", ["/data/L9/", "/data/L9//"])
def test_folder_that_is_no_measurement_set_is_unknown(name):
    assert "write /data/L9/L1234_*.MS" in found(name, dids=["a:L8.ms"], scope="a").unknown_names[name]
    assert chosen(found(name, dids=["a:L9"], scope="a")) == ("a:L9",)
    assert chosen(found("/data/L9.ms/", scope="a")) == ("a:L9.ms",)


def test_resolved_size_is_the_largest_of_all_catalogues():
    one = catalogue("a:L1.ms", sizes={"a:L1.ms": 5})
    two = catalogue("a:L1.ms", name="two", sizes={"a:L1.ms": 7})
    assert resolve_names(["L1.ms"], settings(), [one, two]).sizes == {"a:L1.ms": 7}


def test_resolver_detects_two_names_for_one_dataset():
    resolution = found("/a/L1.ms", "/b/L1.ms", dids=["a:L1.ms"])
    assert resolution.names_by_shared_did == {"a:L1.ms": ("/a/L1.ms", "/b/L1.ms")}
    assert found("/a/L1.ms", "/a/L1.ms", dids=["a:L1.ms"]).names_by_shared_did == {}


@pytest.mark.parametrize(
    "dids",
    [
        ("a:x/L1.MS_0000aaaa.tar", "a:x/L1.MS_1111bbbb.tar"),
        ("a:x/L1.MS", "a:x/L1.MS_1111bbbb.tar"),
        ("a:x/L1.MS", "a:x/L1.MS.tar"),
    ],
)
def test_resolver_detects_a_measurement_set_and_its_archives(dids):
    names = tuple(f"/here/{did.rpartition('/')[2]}" for did in dids)
    assert found(*names, dids=dids).names_by_shared_did == {"a:x/L1.MS": names}
    assert found(*names, dids=[dids[0], dids[1].replace("x/", "y/")]).names_by_shared_did == {}


@pytest.mark.parametrize(
    ("name", "did"),
    [
        ("obs1/L6.MS", "a:obs1/L6.MS"),
        ("/data/obs2/L6.MS/", "a:obs2/L6.MS"),
        ("/data/obs3/L6.MS", "b:deep/obs3/L6.MS_76a2361e.tar"),
        ("/data/b/L6.MS", "b:L6.MS"),
        ("/data/L6.MS", None),
        ("/data/obs3/L6.MS_11111111.tar", None),
    ],
)
def test_folder_decides_between_datasets_of_one_name(name, did):
    held = ["a:obs1/L6.MS", "a:obs2/L6.MS", "b:deep/obs3/L6.MS_76a2361e.tar", "b:L6.MS"]
    assert chosen(found(name, dids=held)) == (did,)


def test_wildcards_in_a_name_are_escaped_in_catalogue_queries():
    assert chosen(found("L[1].ms", names={"L[1].ms": "a:x"}, dids=["a:x"])) == ("a:x",)
    assert chosen(found("L*.ms", dids=["a:L1.ms"])) == (None,)


def test_244_names_take_few_catalogue_queries():
    asked: list[int] = []

    class Counting(MemoryCatalogue):
        def find(self, patterns):
            asked.append(len(patterns))
            return super().find(patterns)

    dids = [f"lofar:L667526_SB{n:03}_uv.ms" for n in range(244)]
    names = [f"/data/{did.partition(':')[2]}" for did in dids]
    counting = Counting("rucio", [replica(did) for did in dids])
    assert chosen(resolve_names(names, settings(), [counting])) == tuple(dids)
    assert len(asked) == 1
    assert asked[0] <= 16


# --- globs


def expanded(*searches: str, dids=(), local=nothing_here, **submit):
    return expand_globs(searches, local, settings(**submit), [catalogue(*dids)])


def test_glob_without_local_matches_gives_names_from_the_catalogues():
    far = expanded("/d/L1_*.ms", dids=["a:L1_2.ms", "a:x/L1_1.ms.tar", "a:L2_1.ms", "a:.L1_9.ms"])
    assert far.names == ("/d/L1_1.ms", "/d/L1_2.ms")
    assert far.catalogue_matches == {"/d/L1_*.ms": ["/d/L1_1.ms", "/d/L1_2.ms"]}


def test_glob_searches_the_default_scope_before_other_scopes():
    held = [catalogue("a:L1.ms", "b:L2.ms", "b:M1.ms")]
    assert expand_globs(["L*.ms", "M*.ms"], nothing_here, settings("a"), held).names == ("L1.ms", "M1.ms")


def test_glob_that_matches_nothing_stays_empty():
    assert expanded("/d/M*.ms", dids=["lofar:L1_SB001.ms"]).catalogue_matches == {"/d/M*.ms": []}


@pytest.mark.parametrize(
    ("search", "names"),
    [
        ("/d/L13*.tar", ["L13_SB0.MS_76a2361e.tar"]),
        ("L2_*_aaaaaaaa.tar", ["L2_SB0.MS_aaaaaaaa.tar"]),
        ("/d/L13*", ["L13_SB0.MS"]),
        ("/d/L2_*.MS", ["L2_SB0.MS"]),
    ],
)
def test_glob_for_archives_gives_the_archives_that_matched(search, names):
    held = [
        "a:L13_SB0.MS",
        "a:L13_SB0.MS_76a2361e.tar",
        "a:L2_SB0.MS_aaaaaaaa.tar",
        "a:L2_SB0.MS_bbbbbbbb.tar",
    ]
    folder = "/d/" * search.startswith("/d/")
    assert expanded(search, dids=held).names == tuple(f"{folder}{name}" for name in names)


def test_glob_matches_names_of_the_names_table():
    assert expanded("/d/L*.ms", names={"L1.ms": "a:odd"}).names == ("/d/L1.ms",)


def test_expansion_reports_an_unreachable_catalogue():
    far = expand_globs(["/d/L*.ms"], nothing_here, settings(), [catalogue(name="dmapi", is_broken=True)])
    assert list(far.unreachable_catalogues) == ["dmapi"]
