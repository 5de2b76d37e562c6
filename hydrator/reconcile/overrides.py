"""Commands of the operator: approve a loss, roll an ad back, resume."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hydrator.domain.model import Did, Site, SiteAd


@dataclass(frozen=True, slots=True)
class Rollback:
    """A site whose ad of an earlier generation is published again, with the ages it had, since then."""

    started_at: datetime
    ad: SiteAd

    @property
    def text(self) -> str:
        return (
            f"rolled back to generation {self.ad.generation}, read {self.ad.as_of:%Y-%m-%d %H:%M:%S} UTC, "
            f"since {self.started_at:%Y-%m-%d %H:%M:%S} UTC"
        )


@dataclass(frozen=True, slots=True)
class Approve:
    """These datasets, held at the site, may leave it."""

    site: Site
    datasets: frozenset[Did]


@dataclass(frozen=True, slots=True)
class Return:
    """Publish *ad*, of an earlier generation, again."""

    ad: SiteAd


@dataclass(frozen=True, slots=True)
class Resume:
    """End what :class:`Return` began at the site."""

    site: Site


@dataclass(frozen=True, slots=True)
class Renumber:
    """Give the ad of the site a new generation, from the time of the cycle that follows this order."""

    site: Site


Command = Approve | Return | Resume | Renumber


@dataclass(frozen=True, slots=True)
class PendingCommands:
    """The orders that were found, each with its file, and what is wrong with those that are none."""

    commands: tuple[tuple[Path, Command], ...] = ()
    invalid_files: tuple[tuple[Path, str], ...] = ()
    problem: str | None = None

    @property
    def problems(self) -> list[str]:
        told = [f"{path}: {why}; it is set aside" for path, why in self.invalid_files]
        return [*told, self.problem] if self.problem else told

    @property
    def approvals(self) -> dict[Site, frozenset[Did]]:
        """By site, the datasets that may leave."""
        approved: dict[Site, frozenset[Did]] = {}
        for _, order in self.commands:
            if isinstance(order, Approve):
                approved[order.site] = approved.get(order.site, frozenset()) | order.datasets
        return approved

    @property
    def sites_to_renumber(self) -> frozenset[Site]:
        """The sites whose ads get a new generation."""
        return frozenset(order.site for _, order in self.commands if isinstance(order, Renumber))

    def apply_to_rollbacks(self, current: Mapping[Site, Rollback], now: datetime) -> dict[Site, Rollback]:
        """The sites that stay at an earlier generation from now on; approving ends that too."""
        rollbacks = dict(current)
        for _, order in self.commands:
            if isinstance(order, Return):
                rollbacks[order.ad.site] = Rollback(now, order.ad)
            elif not isinstance(order, Renumber):
                rollbacks.pop(order.site, None)
        return rollbacks
