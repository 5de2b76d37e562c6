"""For all Rapthor runs: equal attributes. For all START: our clause goes."""

from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.model import Did
from hydrator.submit.pool_config import START_CLAUSE, remove_our_parts
from hydrator.submit.rapthor.job import RapthorRun

DIDS = [Did(f"ska:d{number}") for number in range(6)]

dids = st.lists(st.sampled_from(DIDS), min_size=1, unique=True)
sizes = st.dictionaries(st.sampled_from(DIDS), st.integers(-5, 2**62))


@given(dids, sizes, st.randoms())
def test_equal_runs_say_the_same_in_whatever_order_they_name_their_datasets(names, known, chance):
    """Equal text is what makes one autocluster of jobs."""
    known = {did: size for did, size in known.items() if size >= 0}
    shuffled = [*names, chance.choice(names)]
    chance.shuffle(shuffled)
    backwards = dict(reversed(known.items()))
    assert (
        RapthorRun("r", tuple(shuffled), backwards).attributes
        == RapthorRun("r", tuple(names), known).attributes
    )


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"])).map(str.strip), st.integers(0, 3))
def test_taking_our_clause_out_of_start_leaves_what_was_there(start, times):
    bare = remove_our_parts("START", start)
    text = bare
    for _ in range(times):
        text = f"({text}) && {START_CLAUSE}"
    assert remove_our_parts("START", text) == bare
