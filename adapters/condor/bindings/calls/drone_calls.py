"""Calls for the offline ads of drones, in the child process."""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.condor.bindings.calls.collector_calls import CollectorCalls
from adapters.condor.bindings.library import OFFLINE_DRONE
from adapters.condor.bindings.values import Ad

DRONE_ATTRIBUTE = "DataLocalityDrone"
"""Attribute of an offline ad: the name of the drone type. No other slot ad has it."""
DRONE_AD_ATTRIBUTES = (
    "Name",
    DRONE_ATTRIBUTE,
    "DataLocalitySite",
    "DataLocalityGeneration",
    "DataLocalityAsOf",
    "LastHeardFrom",
    "AuthenticatedIdentity",
)
MATCH_ATTRIBUTES = ("MachineLastMatchTime", "MachineMatchCount")
"""Attributes that the negotiator merges into an offline ad that a waiting job matches."""


class DroneCalls(CollectorCalls):
    """Queries and updates of the offline ads of drones."""

    def drone_ads(self) -> list[Ad]:
        """Return scalars of all offline ads of drones, with the negotiator's match attributes."""
        ads = self._query_drones((*DRONE_AD_ATTRIBUTES, *MATCH_ATTRIBUTES))
        return [self.scalars(ad, (*DRONE_AD_ATTRIBUTES, *MATCH_ATTRIBUTES)) for ad in ads]

    def advertise_drones(self, ads: Sequence[Mapping[str, Any]], lifetime: int) -> int | None:
        """Send the offline ads; return when the collector received the last one, by its clock, or None.

        An update replaces the whole ad. So each new ad gets the match attributes of the ad that it replaces;
        otherwise a refresh would hide from COBalD that a job waits.

        Args:
            ads: ``name``, ``literals`` (attributes with plain values), ``expressions`` (attributes with the
                text of an expression) and ``text`` (the lines of the site ad).
            lifetime: seconds until the collector drops an ad.
        """
        matches = {ad["Name"]: ad for ad in self.drone_ads()}
        version = self.htcondor.version()
        built = []
        for ad in ads:
            name = ad["name"]
            match = {key: matches[name][key] for key in MATCH_ATTRIBUTES if matches.get(name, {}).get(key)}
            texts = {
                key: self.parse_expression(text, f"{key} of drone {name}")
                for key, text in ad["expressions"].items()
            }
            content = {"CondorVersion": version, **ad["literals"], **self._parse_lines(name, ad["text"])}
            built.append(self._build_ad({**content, **texts, **match}, Name=name, ClassAdLifetime=lifetime))
        self._send(built, "UPDATE_STARTD_AD")
        sent = {ad["Name"]: (ad["DataLocalityGeneration"], ad["DataLocalityAsOf"]) for ad in built}

        def is_visible(ads: list[Ad]) -> bool:
            shown = {ad["Name"]: (ad["DataLocalityGeneration"], ad["DataLocalityAsOf"]) for ad in ads}
            return all(shown.get(name) == content for name, content in sent.items())

        shown = self._wait_until_visible(is_visible, self.drone_ads)
        return max((ad["LastHeardFrom"] for ad in shown if ad["Name"] in sent), default=None)

    def invalidate_drones(self, names: Sequence[str]) -> None:
        """Remove the offline ads with these names."""
        queries = [
            self._build_ad(
                MyType="Query",
                TargetType="Machine",
                Name=name,
                Requirements=self.classad.ExprTree(f"Name =?= {self.classad.quote(name)}"),
            )
            for name in names
        ]
        self._send(queries, "INVALIDATE_STARTD_ADS")
        self._wait_until_visible(lambda ads: not {ad["Name"] for ad in ads} & set(names), self.drone_ads)

    def _query_drones(self, attributes: Sequence[str]) -> list[Any]:
        """Query offline ads, which :meth:`query_ads` leaves out of all queries for ``Slot``."""
        return self.query_ads("Startd", attributes, OFFLINE_DRONE)
