"""Commands of the operator: approve a loss, roll an ad back, resume."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hydrator.domain.model import Did, Site, SiteAd


@dataclass(frozen=True, slots=True)
class Rollback:
    """A rolled-back site: its earlier ``ad``, with the ages it had, is published since ``started_at``."""

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
    """Allow these datasets, which the breaker holds, to leave the ad of the site."""

    site: Site
    datasets: frozenset[Did]


@dataclass(frozen=True, slots=True)
class Return:
    """Publish *ad*, of an earlier generation, again."""

    ad: SiteAd


@dataclass(frozen=True, slots=True)
class Resume:
    """End the rollback of the site that :class:`Return` began."""

    site: Site


@dataclass(frozen=True, slots=True)
class Renumber:
    """Give the ad of the site a new generation, from the time of the cycle that executes this command."""

    site: Site


Command = Approve | Return | Resume | Renumber


@dataclass(frozen=True, slots=True)
class PendingCommands:
    """The commands not executed yet, each with its file; and the invalid files, each with the reason."""

    commands: tuple[tuple[Path, Command], ...] = ()
    invalid_files: tuple[tuple[Path, str], ...] = ()
    problem: str | None = None

    @property
    def problems(self) -> list[str]:
        problems = [f"{path}: {why}; it is set aside" for path, why in self.invalid_files]
        return [*problems, self.problem] if self.problem else problems

    @property
    def approvals(self) -> dict[Site, frozenset[Did]]:
        """Return by site the datasets that may leave."""
        approved: dict[Site, frozenset[Did]] = {}
        for _, order in self.commands:
            if isinstance(order, Approve):
                approved[order.site] = approved.get(order.site, frozenset()) | order.datasets
        return approved

    @property
    def sites_to_renumber(self) -> frozenset[Site]:
        """Return the sites whose ads get a new generation."""
        return frozenset(order.site for _, order in self.commands if isinstance(order, Renumber))

    def apply_to_rollbacks(self, current: Mapping[Site, Rollback], now: datetime) -> dict[Site, Rollback]:
        """Return the sites that keep an earlier generation from now on; an approval ends that too."""
        rollbacks = dict(current)
        for _, order in self.commands:
            if isinstance(order, Return):
                rollbacks[order.ad.site] = Rollback(now, order.ad)
            elif not isinstance(order, Renumber):
                rollbacks.pop(order.site, None)
        return rollbacks
