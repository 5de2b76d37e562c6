"""Laws of counting a dataset's files over several storage elements."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.model import DatasetState, FilesOnDisk, Replica, Seen
from hydrator.domain.sites import SiteMapping, add_unions, number_files
from tests.factories import CAM, L1, NOON, OSO, RAL

AVAILABLE, PARTIAL = DatasetState.AVAILABLE, DatasetState.PARTIAL
NAMES = tuple(f"lofar:f{n}" for n in range(5))
SIZES = dict(zip(NAMES, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True))


@st.composite
def replicas(draw) -> tuple[Replica, ...]:
    found = []
    for n in range(draw(st.integers(1, 5))):
        site = draw(st.sampled_from([CAM, RAL, OSO]))
        names = draw(st.sets(st.sampled_from(NAMES)))
        is_known = draw(st.booleans())
        mask = sum(1 << NAMES.index(each) for each in names)
        files = FilesOnDisk(mask, len(NAMES), sum(SIZES.values()), array("d", SIZES.values()).tobytes())
        share = sum(SIZES[each] for each in names) / sum(SIZES.values())
        state = (
            AVAILABLE
            if len(names) == len(NAMES)
            else draw(st.sampled_from([PARTIAL, DatasetState.STAGING, DatasetState.STUCK]))
        )
        found.append(Replica(L1, site, state, share, f"S{n}", files=files if is_known else None))
    return tuple(found)


def names_of(lists) -> set[str]:
    return {name for files in lists for n, name in enumerate(NAMES) if files.mask >> n & 1}


def names_at(parts, sites) -> set[str]:
    return names_of(part.files for part in parts if part.site in sites and part.files)


def best(parts, site) -> float:
    return max((part.fraction for part in parts if part.site == site), default=0.0)


@given(replicas())
def test_together_is_never_less_than_the_best_part_and_takes_nothing_away(parts):
    found = add_unions(parts)
    assert found[len(found) - len(parts) :] == parts
    for added in found[: len(found) - len(parts)]:
        assert added.fraction >= best(parts, added.site)
        assert added.files.files_on_disk > max(
            part.files.files_on_disk for part in parts if part.site == added.site and part.files
        )


@given(replicas())
def test_together_is_whole_only_where_each_file_is_on_disk_at_that_site(parts):
    was = {part.site for part in parts if part.state is AVAILABLE}
    now = {part.site for part in add_unions(parts) if part.state is AVAILABLE}
    known = {
        site: sum(part.files is not None for part in parts if part.site == site) for site in (CAM, RAL, OSO)
    }
    for site in (CAM, RAL, OSO):
        has_all = known[site] > 1 and names_at(parts, {site}) == set(NAMES)
        assert (site in now) == (site in was or has_all)


@given(replicas())
def test_the_fraction_of_what_is_together_is_of_its_bytes(parts):
    for added in add_unions(parts)[: -len(parts)]:
        there = sum(SIZES[name] for name in names_of([added.files]))
        assert added.fraction == max(there / sum(SIZES.values()), best(parts, added.site))


@given(st.dictionaries(st.sampled_from("ABC"), st.sets(st.sampled_from(NAMES))))
def test_each_file_has_one_number_wherever_it_is(places):
    numbers, masks = number_files(places)
    for place, names in places.items():
        assert {name for name, n in numbers.items() if masks[place] >> n & 1} == names


@given(replicas())
def test_counting_together_twice_adds_nothing(parts):
    once = add_unions(parts)
    assert add_unions(once) == once


@given(replicas())
def test_with_a_neighbour_it_is_whole_only_where_each_file_is_on_disk_at_one_of_the_two(parts):
    found = SiteMapping(reads={CAM: frozenset({RAL})}).map_reading(Seen(NOON, parts)).replicas
    whole_here = {part.site for part in add_unions(parts) if part.state is AVAILABLE}
    is_whole = any(part.site == CAM and part.state is AVAILABLE for part in found)
    both = [part for part in parts if part.files and part.site in {CAM, RAL}]
    together = len(both) > 1 and names_at(parts, {CAM, RAL}) == set(NAMES)
    assert is_whole == bool(whole_here & {CAM, RAL} or together)
    assert {part.site for part in found if part.state is AVAILABLE} - {CAM} == whole_here - {CAM}
