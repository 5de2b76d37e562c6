"""Commands of the operator: approve a loss, roll an ad back and end a rollback."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hydrator.domain.model import Did, Site, SiteAd


@dataclass(frozen=True, slots=True)
class Rollback:
    """A rollback of a site: since ``started_at`` the daemon publishes ``ad``, an earlier ad of the site."""

    started_at: datetime
    ad: SiteAd

    @property
    def text(self) -> str:
        return (
            f"rolled back to generation {self.ad.generation}"
            f" with facts of {self.ad.as_of:%Y-%m-%d %H:%M:%S} UTC,"
            f" since {self.started_at:%Y-%m-%d %H:%M:%S} UTC"
        )


@dataclass(frozen=True, slots=True)
class Approve:
    """Let ``datasets`` leave the ad of the site, although the shrink breaker holds them."""

    site: Site
    datasets: frozenset[Did]


@dataclass(frozen=True, slots=True)
class Return:
    """Roll a site back: publish *ad*, an earlier ad of the site, again."""

    ad: SiteAd


@dataclass(frozen=True, slots=True)
class Resume:
    """End the rollback that a :class:`Return` command began at the site."""

    site: Site


Command = Approve | Return | Resume


@dataclass(frozen=True, slots=True)
class PendingCommands:
    """The commands that are not executed yet, each with its file; and invalid files, each with the reason."""

    commands: tuple[tuple[Path, Command], ...] = ()
    invalid_files: tuple[tuple[Path, str], ...] = ()
    problem: str | None = None

    @property
    def problems(self) -> list[str]:
        advice = "the daemon renames the file to *.refused"
        problems = [f"{path}: {why}; {advice}" for path, why in self.invalid_files]
        return [*problems, self.problem] if self.problem else problems

    @property
    def approvals(self) -> dict[Site, frozenset[Did]]:
        """Return, by site, the held datasets that the operator allows to leave the ad."""
        approved: dict[Site, frozenset[Did]] = {}
        for _, order in self.commands:
            if isinstance(order, Approve):
                approved[order.site] = approved.get(order.site, frozenset()) | order.datasets
        return approved

    def apply_to_rollbacks(self, current: Mapping[Site, Rollback], now: datetime) -> dict[Site, Rollback]:
        """Return the rollbacks after the commands; Resume and Approve end the rollback of a site."""
        rollbacks = dict(current)
        for _, order in self.commands:
            if isinstance(order, Return):
                rollbacks[order.ad.site] = Rollback(now, order.ad)
            else:
                rollbacks.pop(order.site, None)
        return rollbacks
