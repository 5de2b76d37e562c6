"""The section [removal_guard]: limits for sudden losses of datasets."""

from pydantic import Field

from .fields import Section


class RemovalGuardSettings(Section):
    """Limits for sudden losses of datasets: after a larger loss, ads still list the missing datasets."""

    site_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="share (0 to 1) of the datasets of one site; if a larger share vanishes at once, the"
        " daemon holds the loss",
    )
    confirm_polls: int = Field(
        20,
        ge=0,
        le=100_000,
        description="number of further polls that must confirm a held loss before the daemon publishes"
        " it; 0: the daemon holds no loss",
    )
