"""Workload file: a JSON description of sites and jobs, or of a mix from which jobs are generated.

docs/how-to/operate/run/try-a-policy.md has examples. Generated mixes draw their jobs from a seed: equal seeds
give equal jobs for every policy, and other seeds give other jobs.
"""

import json
import random
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Site

from .model import InputData, JobClass, PoolSite, Workload

Positive = Annotated[float, Field(gt=0, le=1e15)]
Seconds = Annotated[float, Field(ge=0, le=3.2e8)]
Bytes = Annotated[int, Field(ge=0, le=2**60)]
MAX_JOBS = 5_000_000
WorkloadSource = Callable[[int], Workload]
"""Builds the workload of a seed."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SiteSection(_Strict):
    """A site: its machines, their cores, and the rate of its uplink in bytes a second."""

    site: str = Field(min_length=1, max_length=200)
    machines: int = Field(ge=0, le=1_000_000)
    cores: int = Field(ge=1, le=100_000)
    bytes_per_second: Positive | None = None


class InputSection(_Strict):
    """Data that a job reads, and the sites that have it."""

    bytes: Bytes
    sites: list[str] = Field(min_length=1)
    name: str = Field("", pattern=r"\S*", max_length=500)


class JobsSection(_Strict):
    """Equal jobs, submitted ``interval`` seconds apart, the first after ``submitted`` seconds."""

    count: int = Field(1, ge=1, le=MAX_JOBS)
    user: str = Field("user", min_length=1, max_length=200)
    cores: int = Field(1, ge=1, le=100_000)
    submitted: Seconds = 0.0
    interval: Seconds = 0.0
    compute_seconds: Positive
    inputs: list[InputSection] = Field(default_factory=list)


class MixSection(_Strict):
    """A generated mix of jobs.

    ``shares`` are the shares of the fields (sets of datasets) by site. The names have published figures:
    ``lotss`` for 62/32/6 % [1]. Each field has ``runs_per_field`` jobs and ``replicas`` copies. The computing
    times are uniform, at most ``spread`` (a share) away from ``compute_seconds``. A share of
    ``no_data_share`` of the jobs reads nothing; these jobs belong to the user ``other``.

    [1] LoTSS-DR2: support.astron.nl/confluence, page 78354760: 62 % Jülich, 32 % SURF, 6 % Poznań.
    """

    jobs: int = Field(ge=1, le=MAX_JOBS)
    shares: dict[str, Annotated[float, Field(ge=0)]] | Literal["lotss", "even"] = "lotss"
    bytes: Bytes = 190_000_000_000
    compute_seconds: Positive = 86_400.0
    spread: float = Field(0.0, ge=0, lt=1)
    interval: Seconds = 0.0
    cores: int = Field(1, ge=1, le=100_000)
    runs_per_field: int = Field(1, ge=1, le=100_000)
    datasets_per_job: int = Field(1, ge=1, le=1000)
    replicas: int = Field(1, ge=1, le=100)
    users: int = Field(1, ge=1, le=10_000)
    no_data_share: float = Field(0.0, ge=0, le=1)


class WorkloadFile(_Strict):
    """A workload file: its sites, and either ``jobs`` or a ``mix``."""

    version: Literal[1]
    sites: list[SiteSection] = Field(min_length=1)
    jobs: list[JobsSection] = Field(default_factory=list)
    mix: MixSection | None = None

    @model_validator(mode="after")
    def _check_contents(self) -> "WorkloadFile":
        names = [site.site for site in self.sites]
        if len(set(names)) < len(names):
            raise ValueError("each site may be listed once")
        if bool(self.jobs) == (self.mix is not None):
            raise ValueError("give either jobs or a mix")
        used = {name for row in self.jobs for data in row.inputs for name in data.sites}
        if self.mix:
            used |= set(_shares(self.mix, names))
        if unknown := sorted(used - set(names)):
            raise ValueError(f"data at unknown sites: {', '.join(unknown)}")
        return self


def load_workload_file(path: Path) -> tuple[WorkloadSource, bool]:
    """Return the source of the workload in the file *path*, and whether the jobs are generated.

    Raises:
        ConfigError: the file cannot be read, or is not a workload file; every problem is listed.
    """
    try:
        content = WorkloadFile.model_validate(json.loads(path.read_text("utf-8")))
    except OSError as error:
        raise ConfigError([f"--workload {path}: {error.strerror}"]) from error
    except ValidationError as error:
        raise ConfigError([f"--workload {path}: {_problem(one)}" for one in error.errors()]) from error
    except ValueError as error:
        raise ConfigError([f"--workload {path}: not JSON: {error}"]) from error
    if content.mix is None:
        listed = _build_listed(content)
        return (lambda _seed: listed), False
    mix = content.mix
    return (lambda seed: generate_mix(_sites(content), mix, seed)), True


def generate_mix(sites: Sequence[PoolSite], mix: MixSection, seed: int) -> Workload:
    """Generate the jobs of *mix* with *seed*."""
    draw = random.Random(seed)  # noqa: S311 - a reproducible workload
    shares = _shares(mix, [site.name for site in sites])
    names, weights = list(shares), list(shares.values())
    classes: dict[JobClass, int] = {}
    columns: list[tuple[float, float, int]] = []
    fields: list[tuple[InputData, ...]] = []
    for number in range(mix.jobs):
        field = number // mix.runs_per_field
        if field == len(fields):
            fields.append(_draw_field(field, mix, names, weights, draw))
        has_data = draw.random() >= mix.no_data_share
        user = f"user{number % mix.users + 1}" if has_data else "other"
        one = JobClass(user, mix.cores, fields[field] if has_data else ())
        compute = mix.compute_seconds * draw.uniform(1 - mix.spread, 1 + mix.spread)
        columns.append((number * mix.interval, compute, classes.setdefault(one, len(classes))))
    return _build_workload(sites, list(classes), columns)


def _draw_field(
    number: int, mix: MixSection, names: Sequence[str], weights: Sequence[float], draw: random.Random
) -> tuple[InputData, ...]:
    """Draw the sites of a field's datasets; all datasets of a field are at the same sites."""
    left = dict(zip(names, weights, strict=True))
    holders: list[Site] = []
    for _ in range(min(mix.replicas, sum(weight > 0 for weight in weights))):
        site = draw.choices(list(left), list(left.values()))[0]
        del left[site]
        holders.append(Site(site))
    count = mix.datasets_per_job
    names_of = [f"field{number}" if count == 1 else f"field{number}.{part}" for part in range(count)]
    return tuple(InputData(mix.bytes // count, frozenset(holders), name) for name in names_of)


def _shares(mix: MixSection, sites: Sequence[str]) -> dict[str, float]:
    if isinstance(mix.shares, dict):
        return mix.shares
    if mix.shares == "lotss":
        return dict(zip(sites, (0.62, 0.32, 0.06), strict=False))
    return dict.fromkeys(sites, 1.0)


def _build_listed(content: WorkloadFile) -> Workload:
    classes: dict[JobClass, int] = {}
    columns = []
    for row in content.jobs:
        inputs = tuple(
            InputData(data.bytes, frozenset(map(Site, data.sites)), data.name) for data in row.inputs
        )
        number = classes.setdefault(JobClass(row.user, row.cores, inputs), len(classes))
        times = (row.submitted + row.interval * place for place in range(row.count))
        columns += [(at, row.compute_seconds, number) for at in times]
    columns.sort(key=lambda one: one[0])
    return _build_workload(_sites(content), list(classes), columns)


def _build_workload(
    sites: Sequence[PoolSite], classes: Sequence[JobClass], columns: Sequence[tuple[float, float, int]]
) -> Workload:
    unknown_rates = [site.name for site in sites if site.bytes_per_second is None]
    unknowns = (
        (f"no rate of the uplinks of {', '.join(unknown_rates)}: reads from there take no time",)
        if unknown_rates
        else ()
    )
    return Workload(
        tuple(sites),
        tuple(classes),
        array("d", (one[0] for one in columns)),
        array("d", (one[1] for one in columns)),
        array("i", (one[2] for one in columns)),
        unknowns,
    )


def _sites(content: WorkloadFile) -> list[PoolSite]:
    return [PoolSite(Site(one.site), one.machines, one.cores, one.bytes_per_second) for one in content.sites]


def _problem(error: Any) -> str:  # noqa: ANN401 - pydantic's own
    where = ".".join(str(part) for part in error["loc"])
    return f"{where}: {error['msg']}" if where else str(error["msg"])
