"""Commands of the operator, which the next cycle executes: approve a held loss."""

from dataclasses import dataclass
from pathlib import Path

from hydrator.domain.model import Did, Site


@dataclass(frozen=True, slots=True)
class Approve:
    """Let ``datasets`` leave the ad of the site, although the shrink breaker holds them."""

    site: Site
    datasets: frozenset[Did]


@dataclass(frozen=True, slots=True)
class PendingCommands:
    """The commands that are not executed yet, each with its file; and invalid files, each with the reason."""

    commands: tuple[tuple[Path, Approve], ...] = ()
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
        for _, approval in self.commands:
            approved[approval.site] = approved.get(approval.site, frozenset()) | approval.datasets
        return approved
