"""For all Rapthor runs: equal attributes."""

from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.model import Did
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
        RapthorRun("r", "r", tuple(shuffled), backwards).attributes
        == RapthorRun("r", "r", tuple(names), known).attributes
    )
