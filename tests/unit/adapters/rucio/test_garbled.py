"""Garbled rows and incomplete answers of Rucio: each affects only its dataset (on a stand-in)."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest

from adapters.rucio.catalogue import RucioCatalogue
from hydrator.domain.errors import CatalogueGarbled
from hydrator.domain.model import DatasetState, Did, Reading, Seen, Unseen
from testbed.rucio_standin import FILE_BYTES, FILES, RucioStandIn
from tests.factories import MINUTE, NOON

pytestmark = pytest.mark.outside

DIDS = [Did(f"lofar:L{n}") for n in range(6)]
SICK = DIDS[2]
BOX = Did("lofar:box")
AVAILABLE, STAGING, PARTIAL = DatasetState.AVAILABLE, DatasetState.STAGING, DatasetState.PARTIAL
CHEAP, META, LOCKS = "/replicas/datasets_bulk", "/dids/bulkmeta", "/locks/bulk_locks_for_dids"
FILES_CALL = "/replicas/list"
DEEP = r"/replicas/lofar/L2/datasets"
Spoil = Callable[[list[dict]], list]


class StandIn(RucioStandIn):
    """A stand-in whose answers ``spoil`` changes, by a pattern of the path; it has one container."""

    def __init__(self) -> None:
        states = {"UK-DISK": "available", "AU-DISK": "staging"}
        super().__init__({"UK-DISK": "UK", "AU-DISK": "AU"}, dict.fromkeys(DIDS, states))
        self.spoil: dict[str, Spoil] = {}

    def answer(self, path, query, body):
        status, found = self._plain(path, query, body)
        for pattern, change in self.spoil.items():
            if status == 200 and re.fullmatch(pattern, path.rstrip("/")):
                found = change(found if isinstance(found, list) else [found])
        return status, found

    def _plain(self, path, query, body):
        scope, name = BOX.split(":")
        if path == f"/dids/{scope}/{name}/dids":
            return 200, [{"scope": scope, "name": did.split(":")[1], "type": "DATASET"} for did in DIDS]
        if path == f"/dids/{scope}/{name}":
            total = {"expired_at": None, "bytes": FILES * FILE_BYTES * len(DIDS), "length": FILES * len(DIDS)}
            return 200, {"scope": scope, "name": name, "type": "CONTAINER", "open": False, **total}
        if path.startswith("/rses/") and path.count("/") == 2 and path[6:]:
            if path[6:] not in self.storages:
                return 404, {"ExceptionClass": "RSENotFound"}
            return 200, {"rse": path[6:], "rse_type": "DISK", "deleted": False}
        if path == FILES_CALL:
            return 200, []
        status, found = super().answer(path, query, body)
        if path == META and any(each["name"] == name for each in body["dids"]):
            found.append({"scope": scope, "name": name, "did_type": "CONTAINER", "bytes": None})
        return status, found


def of_the_sick(change: Callable[[dict], object]) -> Spoil:
    """Change the first row of the sick dataset."""

    def spoil(rows: list[dict]) -> list:
        mine = next((row for row in rows if row.get("name") == "L2"), None)
        return [change(row) if row is mine else row for row in rows]

    return spoil


def put(**values: object) -> Spoil:
    return of_the_sick(lambda row: {**row, **values})


def read(catalogue: RucioCatalogue) -> dict[Did, Reading]:
    return dict(catalogue.read(frozenset(DIDS)).readings)


def seen(readings: dict[Did, Reading]) -> dict[Did, set[tuple[str, DatasetState]]]:
    return {
        did: {(replica.site, replica.state) for replica in reading.replicas}
        for did, reading in readings.items()
        if isinstance(reading, Seen)
    }


HEALTHY = {("UK", AVAILABLE), ("AU", STAGING)}


ROWS = {
    "a length in words": (CHEAP, put(length="4")),
    "a negative length": (CHEAP, put(available_length=-1)),
    "a length that is a boolean": (CHEAP, put(length=True)),
    "half of a file": (CHEAP, put(length=3.5)),
    "more bytes than there are": (CHEAP, put(bytes=10**30)),
    "no element": (CHEAP, put(rse=None)),
    "no name": (CHEAP, put(name=None)),
    "a name that nobody asked for": (CHEAP, put(name="L99")),
    "a scope that nobody asked for": (CHEAP, put(scope="lofar2")),
    "a name with a control character": (CHEAP, put(name="L2\0")),
    "no record": (CHEAP, of_the_sick(lambda _: ["L2"])),
    "a deep count in words": (DEEP, put(available_length="4")),
    "more files than there are": (DEEP, put(available_length=FILES + 1)),
    "two lengths of one dataset": (DEEP, put(length=FILES + 1)),
    "another dataset's deep count": (DEEP, put(scope="elsewhere")),
    "a kind that is none": (META, put(did_type=None)),
    "a size in words": (META, put(bytes="many")),
    "an end that is no time": (META, put(expired_at="soon")),
    "an end that no clock has": (META, put(expired_at="Mon, 01 Jan 99999999999999999999 00:00:00 GMT")),
    "an end before 1970": (META, put(expired_at="Wed, 31 Dec 1969 23:59:59 GMT")),
    "openness in words": (META, put(is_open="yes")),
    "another dataset's metadata": (META, put(name="L99")),
    "an unknown state of a lock": (LOCKS, put(state="PAUSED")),
    "a lock without a rule": (LOCKS, put(rule_id=None)),
    "a lock at no element": (LOCKS, put(rse=7)),
    "another dataset's lock": (LOCKS, put(name="L99")),
    "an unknown state of a rule": ("/rules/rule-L2", put(state="FROZEN", scope="lofar", name="L2")),
    "a rule that ends at no time": ("/rules/rule-L2", put(expires_at="soon", name="L2")),
    "a rule that ended before 1970": (
        "/rules/rule-L2", put(expires_at="Wed, 31 Dec 1969 23:59:59 GMT", name="L2"),
    ),
    "a rule that ends at a time that no clock has": (
        "/rules/rule-L2", put(expires_at="Mon, 01 Jan 99999999999999999999 00:00:00 GMT", name="L2"),
    ),
    "an unknown grouping of a rule": ("/rules/rule-L2", put(grouping="SOME", name="L2")),
    "another rule": ("/rules/rule-L2", put(id="rule-L3", name="L2")),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_row_that_cannot_be_read_makes_its_dataset_unseen_and_no_other(asking, stand_in, row):
    path, change = ROWS[row]
    if path.startswith("/rules/"):
        stand_in.spoil[path] = lambda rows: change([{**rows[0], "name": "L2"}])[0]
    else:
        stand_in.spoil[path] = change
    readings = read(asking())
    reading = readings.pop(SICK)
    assert isinstance(reading, Unseen), reading
    assert len(reading.reason) > 10
    assert seen(readings) == dict.fromkeys(readings, HEALTHY)


def test_as_many_datasets_as_have_garbled_rows_are_unseen(asking, stand_in):
    dids = [Did(f"lofar:M{n:03}") for n in range(200)]
    stand_in.holdings = {did: {"UK-DISK": "available"} for did in dids}
    stand_in.spoil[CHEAP] = lambda rows: [
        {**row, "length": "4"} if int(row["name"][1:]) % 2 else row for row in rows
    ]
    readings = asking().read(frozenset(dids)).readings
    assert {did for did, reading in readings.items() if isinstance(reading, Unseen)} == set(dids[1::2])


ODD_ELEMENTS = [
    {"rse_type": "GLASS"},
    {"rse_type": None},
    {"deleted": "no"},
    {"availability_read": "true"},
    {"volatile": 1},
    {"site": ["AU"]},
    {"site": True},
]


@pytest.mark.parametrize("kind", ["DATASET", "FILE"])
@pytest.mark.parametrize("was_known", [False, True])
@pytest.mark.parametrize("change", ODD_ELEMENTS, ids=str)
def test_an_odd_storage_element_leaves_its_site_open_and_no_other(asking, stand_in, change, was_known, kind):
    """A site with a complete copy elsewhere is known; if the element's own site is unknown, no other is."""
    alone, half = DIDS[0], DIDS[1]
    here, odd = {"UK-DISK": "available"}, {"AU-DISK": "available"}
    stand_in.storages["RAL-DISK"] = "RAL"
    stand_in.holdings = {SICK: here | odd, alone: odd, half: {"UK-DISK": "partial"} | odd}
    if kind == "FILE":
        del stand_in.holdings[half]
        stand_in.spoil[META] = lambda rows: [{**row, "did_type": "FILE"} for row in rows]
        stand_in.spoil[FILES_CALL] = lambda _: [
            {
                "scope": "lofar",
                "name": did.split(":")[1],
                "states": dict.fromkeys(stand_in.holdings[did], "AVAILABLE"),
            }
            for did in stand_in.holdings
        ]
    catalogue = asking(attributes_every=timedelta(0))
    if was_known:
        read(catalogue)
    if "site" in change:
        stand_in.storages["AU-DISK"] = change["site"]
    else:
        stand_in.spoil["/rses"] = lambda rows: [
            {**row, **change} if row["rse"] == "AU-DISK" else row for row in rows
        ]
    dids = frozenset(stand_in.holdings)
    readings = catalogue.read(dids).readings
    assert readings[alone].reason.startswith(f"{alone} is at AU-DISK: ")
    assert "bad row" not in readings[alone].reason
    assert seen({SICK: readings[SICK]}) == {SICK: {("UK", AVAILABLE)}}
    assert readings[SICK].unreachable_sites == ({"AU"} if was_known else {"RAL"})
    if half in dids:
        assert seen({half: readings[half]}) == {half: {("UK", PARTIAL)}}
        assert readings[half].unreachable_sites == ({"AU"} if was_known else {"UK", "RAL"})


def test_a_site_attribute_with_spaces_around_it_is_the_same_site(asking, stand_in):
    stand_in.storages["AU-DISK"] = " UK\n"
    assert asking().read({SICK}).sites == {"UK"}


def without(text: str) -> Spoil:
    return lambda rows: [row for row in rows if text not in row.values()]


def once(cut: Spoil) -> Spoil:
    """Cut the first answer short with *cut*, and no other."""
    left = [cut]
    return lambda rows: left.pop()(rows) if left else rows


@pytest.mark.parametrize(
    ("answer", "cut", "is_first"),
    [(DEEP, "UK-DISK", False), (DEEP, "UK-DISK", True), (LOCKS, "L2", False)],
    ids=["count", "first count", "locks"],
)
def test_an_answer_that_was_cut_once_takes_nothing_away(asking, stand_in, answer, cut, is_first):
    """The first count is compared with the summary, a later one with the last, locks with the last ones."""
    now = [NOON]
    catalogue = asking(lambda: now[0], verify_every=timedelta(0))
    if not is_first:
        read(catalogue)
    stand_in.spoil[answer] = once(without(cut))
    readings = read(catalogue)
    assert isinstance(readings[SICK], Unseen) or seen(readings)[SICK] == HEALTHY
    now[0] += MINUTE
    assert seen(read(catalogue))[SICK] == HEALTHY


def test_a_smaller_count_is_accepted_after_two_equal_answers(asking, stand_in):
    catalogue = asking(verify_every=timedelta(0))
    read(catalogue)
    stand_in.holdings[SICK] = {"UK-DISK": "partial", "AU-DISK": "staging"}
    stand_in.asked.clear()
    assert seen(read(catalogue))[SICK] == {("UK", PARTIAL), ("AU", STAGING)}
    assert stand_in.asked.count(DEEP) == 2
    stand_in.asked.clear()
    read(catalogue)
    assert stand_in.asked.count(DEEP) == 1


def no_files(rows: list[dict]) -> list[dict]:
    return [{**row, "length": 0, "available_length": 0} for row in rows]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    "cut", [lambda _: [], no_files, without("UK-DISK")], ids=["none", "0 of 0", "one site"]
)
def test_storage_that_every_count_lacks_but_the_summary_has_is_in_doubt(asking, stand_in, is_first, cut):
    """Case R4: after two equal answers the dataset counted as deleted."""
    stand_in.holdings[SICK] = {"UK-DISK": "available"}
    catalogue = asking(verify_every=timedelta(0))
    if not is_first:
        read(catalogue)
    stand_in.spoil[DEEP] = cut
    for _ in range(3):
        readings = catalogue.read({*DIDS, BOX}).readings
        for did in (SICK, BOX):
            assert not isinstance(readings[did], Unseen)
            assert readings[did].unreachable_sites == {"UK"}
            assert not any(each.site == "UK" for each in readings[did].replicas)
    del stand_in.spoil[DEEP]
    assert seen(read(catalogue))[SICK] == {("UK", AVAILABLE)}
    stand_in.spoil[DEEP] = cut
    stand_in.spoil[CHEAP] = without("L2")
    assert seen(read(catalogue))[SICK] == set(), "both answers agree now"


def test_storage_that_the_count_omits_beside_others_has_no_good_file(asking, stand_in):
    """Rucio omits an element where all files are bad, and its summary may never notice (rucio#4015)."""
    stand_in.holdings[SICK] = {"UK-DISK": "available", "AU-DISK": "available"}
    stand_in.spoil[DEEP] = without("UK-DISK")
    reading = asking().read({SICK}).readings[SICK]
    assert (reading.unreachable_sites, [each.site for each in reading.replicas]) == (set(), ["AU"])


def test_a_list_of_storage_elements_that_was_cut_short_removes_no_fact(asking, stand_in):
    catalogue = asking(verify_every=timedelta(0))
    sites = catalogue.read(frozenset(DIDS)).sites
    stand_in.spoil["/rses"] = without("AU-DISK")
    for one in (catalogue, asking()):
        assert seen(read(one)) == dict.fromkeys(DIDS, HEALTHY)
    assert catalogue.read(frozenset(DIDS)).sites == sites


@pytest.mark.parametrize("kind", ["DATASET", "FILE"])
def test_data_at_an_element_deleted_before_the_first_poll_hides_no_other_copy(asking, stand_in, kind):
    """Rows remain for a while; the daemon never saw the element in a list."""
    stand_in.holdings = {SICK: {"UK-DISK": "available", "OLD-DISK": "available"}}
    states = {"UK-DISK": "AVAILABLE", "OLD-DISK": "AVAILABLE"}
    stand_in.spoil[META] = put(did_type=kind)
    stand_in.spoil[FILES_CALL] = lambda _: [{"scope": "lofar", "name": "L2", "states": states}]
    assert seen(dict(asking().read({SICK}).readings)) == {SICK: {("UK", AVAILABLE)}}


def test_elements_with_data_that_no_list_has_are_queried_in_each_poll(asking, stand_in):
    hidden = {f"HID-{n}": f"H{n}" for n in range(30)}
    stand_in.storages |= hidden
    stand_in.holdings = {did: dict.fromkeys(hidden, "available") for did in DIDS}
    stand_in.spoil["/rses"] = lambda rows: [row for row in rows if row["rse"] not in hidden]
    catalogue = asking(verify_every=timedelta(0))
    for _ in range(2):
        survey = catalogue.read(frozenset(DIDS))
        assert seen(dict(survey.readings))[SICK] == {(site, AVAILABLE) for site in hidden.values()}
        assert survey.sites >= set(hidden.values())


def test_deleted_storage_elements_are_queried_a_few_in_each_poll(asking, stand_in):
    stand_in.storages |= {f"OLD-{n}": f"OLD{n}" for n in range(50)}
    catalogue = asking()
    assert len(catalogue.read(frozenset(DIDS)).sites) == 52
    stand_in.storages = {"UK-DISK": "UK", "AU-DISK": "AU"}
    for left in (50, 30):
        with pytest.raises(CatalogueGarbled, match=f"omits {left}"):
            catalogue.read(frozenset(DIDS))
    survey = catalogue.read(frozenset(DIDS))
    assert len(survey.sites) == 52, "they are looked at, and nothing is there"
    assert seen(dict(survey.readings)) == dict.fromkeys(DIDS, HEALTHY)


def test_a_container_of_which_parts_were_cut_is_unseen(asking, stand_in):
    stand_in.holdings = {did: {"UK-DISK": "available"} for did in DIDS}
    catalogue = asking()
    reading = catalogue.read({BOX}).readings[BOX]
    assert {(r.site, r.state) for r in reading.replicas} == {("UK", AVAILABLE)}
    stand_in.spoil[f"/dids/{BOX.replace(':', '/')}/dids"] = lambda rows: rows[:2]
    for one in (catalogue, asking()):
        reading = one.read({BOX, SICK}).readings[BOX]
        assert isinstance(reading, Unseen)
        assert "2 datasets" in reading.reason


def test_a_container_with_a_dataset_whose_name_no_ad_can_have_is_seen(asking, stand_in):
    """CMS names the blocks in its containers ``A#12ac``."""
    block = Did("lofar:A#12ac,%2F")
    stand_in.holdings = {did: {"UK-DISK": "available"} for did in DIDS[1:]}
    stand_in.holdings[block] = {"UK-DISK": "partial"}
    row = {"scope": "lofar", "name": "A#12ac,%2F", "type": "DATASET"}
    stand_in.spoil[f"/dids/{BOX.replace(':', '/')}/dids"] = lambda rows: [row, *rows[1:]]
    reading = asking().read({BOX}).readings[BOX]
    assert {(r.site, r.state) for r in reading.replicas} == {("UK", PARTIAL)}
    assert "/replicas/lofar/A%2312ac%2C%252F/datasets" in stand_in.asked


def test_a_part_of_an_unknown_kind_makes_its_container_unseen(asking, stand_in):
    stand_in.spoil[f"/dids/{BOX.replace(':', '/')}/dids"] = lambda rows: [
        *rows[1:],
        {**rows[0], "type": "ARCHIVE"},
    ]
    assert isinstance(asking().read({BOX, SICK}).readings[BOX], Unseen)
