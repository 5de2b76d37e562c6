"""The laws: what must hold whatever goes wrong. They are written from DESIGN.md and the README's promises."""

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from hydrator import startd_cron as hook
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did, QueuedJobs, Site, SiteAd, Survey, to_unix

if TYPE_CHECKING:
    from tests.simulation.world import World


class Laws:
    """What was seen in a run, and which laws it broke."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.broken: list[tuple[str, str]] = []
        self.events: Counter[str] = Counter()
        self._named: set[Did] = set()

    def happened(self, event: str) -> None:
        """Count *event*, one of the situations that each full run must have met."""
        self.events[event] += 1

    def _break(self, law: str, sentence: str) -> None:
        self._world.tell(f"BROKEN: {law}: {sentence}")
        self.broken.append((law, sentence))

    def note_survey(self, survey: Survey) -> None:
        """Note what a catalogue reported."""

    def note_demand(self, schedd: str, groups: Sequence[QueuedJobs]) -> None:
        """Note which sets the jobs of *schedd* named."""
        self._named.update(Did(did) for group in groups for did in group.datasets)

    def note_clock_step(self) -> None:
        """Note that the wall clock was set."""

    def note_configuration(self) -> None:
        """Note that the configuration changes."""

    def check_ad(self, publisher: str, ad: SiteAd) -> None:
        """Check an ad that the daemon sends to *publisher*."""

    # ---- the end: what is published is the truth

    def check_end(self) -> None:
        """Check, some time after the last fault, that every publisher has the truth."""
        world = self._world
        if world.daemon is None:
            return self._break("truth", "the daemon does not run")
        sections = world.configurations[world.configuration]
        aliases, retired = (sections.get("sites", {}).get(key, ()) for key in ("aliases", "retired"))
        for site in sorted(world.truth.all_sites):
            shown_as = Site(aliases.get(site, site)) if aliases else site
            for source, max_age in (("file", 90), ("http", 90), ("collector", 390)):
                text = world.read_source(source, shown_as)
                if site in retired:
                    if text is not None:
                        self._break("truth", f"{source} has an ad of {site}, which is retired")
                elif text is None:
                    self._break("truth", f"{source} has no ad of {shown_as}")
                else:
                    ad = hook.read_ad(text.encode(), shown_as, to_unix(world.clock()))
                    self._check_truth(f"{source}'s ad of {shown_as}", site, ad, max_age)
        return None

    def _check_truth(self, what: str, site: Site, ad: dict[str, Any], max_age: int) -> None:
        truth, world = self._world.truth, self._world
        sections = world.configurations[world.configuration]
        demand, never = sections["demand"], sections["publish"].get("never", ())

        def is_private(did: Did) -> bool:
            return any(fnmatchcase(did, pattern) for pattern in never)

        named_now = {did for queue in truth.queues.values() for dids in queue for did in dids}
        matched = {
            did
            for shares in truth.shares.values()
            for did, at in shares.items()
            if at and any(fnmatchcase(did, pattern) for pattern in demand["patterns"])
        }
        wanted = {did for did in named_now | matched | set(demand["pins"]) if not is_private(did)}
        shown = set(ad["AvailableDatasets"])
        whole = {did for did in truth.sizes if truth.share(did, site) == 1}
        if missing := (wanted & whole) - shown:
            self._break("truth", f"{what} lacks {', '.join(sorted(missing))}")
        if wrong := shown - whole:
            self._break("truth", f"{what} has {', '.join(sorted(wrong))}, which is not whole there")
        if unasked := shown - wanted - self._named:
            self._break("truth", f"{what} has {', '.join(sorted(unasked))}, which nobody named")
        if secret := {did for did in shown if is_private(did)}:
            self._break("truth", f"{what} has {', '.join(sorted(secret))}, which are private")
        if (age := to_unix(world.clock()) - ad["DataLocalityAsOf"]) > max_age:
            self._break("truth", f"{what} is {age} s old")
        for queue in truth.queues.values():
            for dids in queue:
                if any(is_private(did) for did in dids):
                    continue
                self._check_share(what, site, ad["DataLocalitySets"], dids)

    def _check_share(self, what: str, site: Site, sets: dict[str, float], dids: tuple[Did, ...]) -> None:
        truth = self._world.truth
        total = sum(truth.sizes[did] for did in dids)
        share = sum(truth.sizes[did] * (truth.share(did, site) or 0) for did in dids) / total
        shown = sets.get(set_key(dids))
        if shown is None or abs(shown - share) > 0.02 or (shown == 1) != (share == 1):
            self._break("truth", f"{what} shows {shown} of {', '.join(dids)}, where {share:.2f} is")
