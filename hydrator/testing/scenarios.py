"""Scenarios: twenty events of a dataset and the expected ad of its site, the same for every catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hydrator.domain.model import DatasetState, Site

CAM, RAL = Site("CAM"), Site("RAL")
ReplicaRow = tuple[Site, DatasetState, float | None]


@dataclass(frozen=True)
class Scenario:
    """An event of the dataset ``L1``, which is also complete at a storage element without a site.

    ``expected_states`` has the dataset's ``DatasetStates``, by site, and ``expected_fraction`` its fraction
    at CAM. ``replicas`` has the replicas after the event; None if a list of replicas cannot express it.
    """

    name: str
    expected_states: Mapping[Site, str] = field(default_factory=dict)
    expected_fraction: float | None = None
    replicas: tuple[ReplicaRow, ...] | None = None

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def _single_site_scenario(
    name: str, state: str, replica_state: DatasetState, expected_fraction: float | None = None
) -> Scenario:
    return Scenario(name, {CAM: state}, expected_fraction, ((CAM, replica_state, expected_fraction),))


SCENARIOS = (
    _single_site_scenario("whole on disk", "AVAILABLE", DatasetState.AVAILABLE),
    Scenario("on its way, nothing is here yet", {CAM: "STAGING"}, None, ((CAM, DatasetState.STAGING, 0.0),)),
    _single_site_scenario("on its way, half is here", "STAGING", DatasetState.STAGING, 0.5),
    _single_site_scenario("half is here and nothing moves", "PARTIAL", DatasetState.PARTIAL, 0.5),
    _single_site_scenario("whole on tape only", "NEARLINE", DatasetState.NEARLINE),
    Scenario(
        "whole on tape and recalled to disk",
        {CAM: "STAGING"},
        0.25,
        ((CAM, DatasetState.NEARLINE, None), (CAM, DatasetState.STAGING, 0.25)),
    ),
    _single_site_scenario("its transfer is stuck at half", "STUCK", DatasetState.STUCK, 0.5),
    Scenario("its transfer was suspended at half", {CAM: "STUCK"}, 0.5),
    Scenario("its transfer waits for approval", {CAM: "STUCK"}),
    Scenario("its transfer was asked for and has not begun", {CAM: "STAGING"}),
    Scenario(
        "whole at one of two elements, half at the other",
        {CAM: "AVAILABLE"},
        None,
        ((CAM, DatasetState.AVAILABLE, None), (CAM, DatasetState.PARTIAL, 0.5)),
    ),
    Scenario(
        "it left one site and is at another", {RAL: "AVAILABLE"}, None, ((RAL, DatasetState.AVAILABLE, None),)
    ),
    Scenario("it exists without any file", {}),
    Scenario("it is at no site", {}, None, ()),
    Scenario("a quarter of its files went bad", {CAM: "PARTIAL"}, 0.75),
    Scenario("its storage cannot be read", {CAM: "UNAVAILABLE"}),
    Scenario("whole in a cache only", {CAM: "PARTIAL"}),
    Scenario("whole and about to be deleted", {CAM: "PARTIAL"}),
    Scenario("a container of two, both whole", {CAM: "AVAILABLE"}),
    Scenario("a container of two, one at half on its way", {CAM: "STAGING"}, 0.75),
)

RECORDS_STATES_ONLY = {
    scenario.name: "this catalogue records states, but not the events that led to them"
    for scenario in SCENARIOS
    if scenario.replicas is None
}
"""The value of ``cannot_happen`` for a catalogue that is only a list of replicas."""
