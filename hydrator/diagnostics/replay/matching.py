"""Matching in the model: the lines of jobs, and the verdict of the pool's expressions for each of them."""

import math
from collections.abc import Callable, Sequence

from hydrator.domain.ads.dataset_sets import SetKey

from .expressions import (
    TIME_BITS,
    TURN_NUMBERS,
    AdEntry,
    ExpressionEvaluator,
    Matcher,
    ReadLimit,
    rank_of_others,
    read_limit,
)
from .lines import (
    FREE_VERDICT,
    AdBatch,
    EntryNumbers,
    JobLine,
    MatchVerdict,
    ModeResults,
    ReadTurn,
    SetGroup,
    SiteRanking,
    UserState,
    VerdictCache,
    build_ranking,
    group_key,
    share_at,
)
from .model import OFF, JobClass, PolicyChoice, PoolRules, PoolSite, Workload


class LineTable:
    """The lines of a workload's jobs under one policy.

    Attributes:
        lines: all lines.
        line_of_class: the line by class of jobs.
        users: the users by name.
    """

    def __init__(self, workload: Workload, policy: PolicyChoice, verdicts: VerdictCache) -> None:
        self.users: dict[str, UserState] = {}
        self.line_of_class: list[JobLine] = []
        groups: dict[object, SetGroup] = {}
        lines: dict[object, JobLine] = {}
        is_stock = policy.mode == "off" and not policy.is_recorded
        for one in workload.classes:
            line_policy = (one.policy or OFF) if policy.is_recorded else policy
            key = group_key(one)
            if key not in groups:
                groups[key] = _build_group(len(groups), one, workload.sites)
            line_key = (one.user, line_policy, key, one.expected_seconds)
            if line_key not in lines:
                is_free = line_policy.mode == "off" or not one.inputs
                lines[line_key] = JobLine(
                    cores=one.cores,
                    policy=line_policy,
                    group=groups[key],
                    user=self.users.setdefault(one.user, UserState(one.user)),
                    is_free=is_free,
                    results=ModeResults() if is_free else verdicts.results_of(line_policy),
                    is_ranked=not is_stock,
                    expected_seconds=one.expected_seconds,
                )
            self.line_of_class.append(lines[line_key])
        self.lines = list(lines.values())


class MatchTable:
    """The verdicts of the pool's expressions for jobs of one run.

    Args:
        workload: the jobs and sites.
        policy: the policy of the run.
        rules: the pool's rules.
        evaluator: evaluates the expressions.
    """

    def __init__(
        self, workload: Workload, policy: PolicyChoice, rules: PoolRules, evaluator: ExpressionEvaluator
    ) -> None:
        self._submitted, self._begin_unix = workload.submitted, workload.begin_unix
        self._numbers = EntryNumbers()
        self.verdicts = VerdictCache(self._numbers, lambda mode: Matcher(evaluator, mode))
        self.lines = LineTable(workload, policy, self.verdicts)
        self.sets = PublishedSets(workload, rules)
        self.ads = AdBatch(-math.inf)
        self._settle_seconds, self._others_weight = rules.settle_seconds, rules.others_weight
        self._turns, self._evaluator = rules.turns, evaluator
        self._limits: dict[int, ReadLimit | None] = {}
        self._other_verdicts: dict[int, MatchVerdict] = {}
        self._other_rankings: dict[tuple[int, ...], SiteRanking] = {}
        self._absent_row = (0,) * len(workload.sites)
        self._free_ranking = build_ranking([FREE_VERDICT] * len(workload.sites))

    def look_up(self, line: JobLine, job: int, site: int, now: float) -> MatchVerdict:
        """Return the verdict of *job*, the first of *line*, at the index *site* on the present ads."""
        return (
            self._rank_for_others(line, site, now)
            if line.is_free
            else self._verdict(line, job, site, self.ads, now)
        )

    def rank_sites(self, line: JobLine, job: int, now: float) -> SiteRanking:
        """Return the sites whose present ads *job*, the first of *line*, matches, best rank first."""
        if line.is_free:
            return self._rank_sites_for_others(line, now)
        row, time_class = case = self._find_case(line, job, self.ads, now)
        ranking = line.results.rankings.get(case)
        if ranking is None:
            ranking = build_ranking([self._verdict_of(line, entry, time_class) for entry in row])
            line.results.rankings[case] = ranking
        return ranking

    def find_turn(self, line: JobLine, job: int, site: int, ads: AdBatch, now: float) -> ReadTurn | None:
        """Return the read limit of *job*, the first of *line*, at *site* with *ads*; None without a limit."""
        if self._turns is None or line.is_free or line.policy.mode != "auto" or site in line.group.homes:
            return None
        estimates = ads.estimates[site] if ads.estimates and now < ads.estimates_until else None
        one = estimates.by_key.get(line.group.key) if estimates else None
        is_published = one is not None and self.sets.published_at(job) <= ads.published_at
        if one is None or one.read_seconds is None or one.source is None or not is_published:
            return None
        seconds = one.read_seconds
        if seconds not in self._limits:
            self._limits[seconds] = read_limit(self._evaluator, seconds, self._turns)
        limit = self._limits[seconds]
        if limit is None:
            return None
        number = int(self._begin_unix + now) // limit.turn_seconds % TURN_NUMBERS
        return ReadTurn(one.source, limit.turn_seconds, number, limit.weight)

    def find_line(
        self,
        user: UserState,
        site: int,
        ads: AdBatch,
        cores: int,
        least_rank: float,
        now: float,
        *,
        takes: Callable[[ReadTurn], bool],
    ) -> JobLine | None:
        """Return the line with the user's first job that matches *ads* at *site*.

        The job needs at most *cores* and ranks the slot at least *least_rank*, and the slot *takes* its read
        limit.
        """
        best, first = None, -1
        for line in user.lines:
            job = line.waiting[0]
            if line.cores > cores or (best is not None and job > first):
                continue
            verdict = FREE_VERDICT if line.is_free else self._verdict(line, job, site, ads, now)
            if verdict.matches and verdict.rank >= least_rank:
                turn = self.find_turn(line, job, site, ads, now)
                if turn is None or takes(turn):
                    best, first = line, job
        return best

    def release_at(self, line: JobLine, job: int) -> float:
        """Return the end of the wait of *job*, in workload seconds."""
        return line.release_at(self._submitted[job], self._begin_unix)

    def _rank_for_others(self, line: JobLine, site: int, now: float) -> MatchVerdict:
        """Return the verdict for jobs without data: the negotiator prefers slots without an own queue."""
        is_known = line.is_ranked and self.ads.estimates and now < self.ads.estimates_until
        own = self.ads.estimates[site].own_queue_seconds if is_known else 0
        if not own:
            return FREE_VERDICT
        if own not in self._other_verdicts:
            rank = rank_of_others(self._evaluator, own, self._others_weight)
            self._other_verdicts[own] = MatchVerdict(True, True, rank)
        return self._other_verdicts[own]

    def _rank_sites_for_others(self, line: JobLine, now: float) -> SiteRanking:
        if not (line.is_ranked and self.ads.estimates and now < self.ads.estimates_until):
            return self._free_ranking
        queues = tuple(each.own_queue_seconds for each in self.ads.estimates)
        ranking = self._other_rankings.get(queues)
        if ranking is None:
            verdicts = [self._rank_for_others(line, site, now) for site in range(len(queues))]
            ranking = self._other_rankings[queues] = build_ranking(verdicts)
        return ranking

    def _verdict(self, line: JobLine, job: int, site: int, ads: AdBatch, now: float) -> MatchVerdict:
        row, time_class = self._find_case(line, job, ads, now)
        return self._verdict_of(line, row[site], time_class)

    def _verdict_of(self, line: JobLine, entry: int, time_class: int) -> MatchVerdict:
        case = entry << TIME_BITS | time_class
        return line.results.verdicts.get(case) or self.verdicts.evaluate(line, case)

    def _find_case(self, line: JobLine, job: int, ads: AdBatch, now: float) -> tuple[tuple[int, ...], int]:
        """Return the numbers of the entries of the set in *ads*, by site, and the time class of *job*."""
        number, release_at, published_at = line.head
        if number != job:
            release_at, published_at = self._read_head(line, job)
        row, published_ago = self._absent_row, ads.published_at - published_at
        if published_ago >= 0:
            row = ads.rows.get(line.group.index) or self._build_row(line.group, ads)
        return row, (
            (published_ago >= self._settle_seconds) << 3
            | (now >= release_at) << 2
            | (now < ads.estimates_until) << 1
            | (now < ads.fresh_until)
        )

    def _read_head(self, line: JobLine, job: int) -> tuple[float, float]:
        """Return the end of the wait of *line*'s first job, and the time since which the ads have its set."""
        release_at, published_at = self.release_at(line, job), self.sets.published_at(job)
        if published_at != math.inf:
            line.head = job, release_at, published_at
        return release_at, published_at

    def _build_row(self, group: SetGroup, ads: AdBatch) -> tuple[int, ...]:
        """Return the numbers of the entries of *group* in *ads*, by site, and keep them in *ads*.

        As in the ads, a set that is whole at a site has no seconds there.
        """
        entries = []
        for site, share in enumerate(group.shares):
            estimates = ads.estimates[site] if ads.estimates else None
            one = estimates.by_key.get(group.key) if estimates and share < 1 else None
            own = estimates.own_queue_seconds if estimates else 0
            read, queue = (one.read_seconds, one.queue_seconds) if one else (None, None)
            entries.append(AdEntry(share, read, queue, own))
        row = ads.rows[group.index] = tuple(self._numbers.number(entry) for entry in entries)
        return row


class PublishedSets:
    """The demanded sets of datasets, and the time when each is in the ads for the first time.

    A set that was published once stays in the ads: the daemon keeps it for ``[demand] keep_hours``.

    Args:
        workload: the jobs.
        rules: the pool's rules.
    """

    def __init__(self, workload: Workload, rules: PoolRules) -> None:
        numbers: dict[object, int] = {}
        self._class_of = workload.class_of
        self._set_of_class = [
            numbers.setdefault(one.inputs, len(numbers)) if one.inputs else -1 for one in workload.classes
        ]
        first = -math.inf if rules.is_published_beforehand else math.inf
        self._published_at = [first] * len(numbers)
        self._new: list[int] = []

    def add(self, job: int) -> None:
        """Count the submission of *job*."""
        number = self._set_of_class[self._class_of[job]]
        if number >= 0 and self._published_at[number] == math.inf:
            self._new.append(number)

    def publish(self, now: float) -> bool:
        """Publish the new sets; return True if there are any."""
        for number in self._new:
            self._published_at[number] = min(self._published_at[number], now)
        has_new = bool(self._new)
        self._new.clear()
        return has_new

    def published_at(self, job: int) -> float:
        """Return the time since which the ads have the set of *job*, which has data."""
        return self._published_at[self._set_of_class[self._class_of[job]]]


def _build_group(index: int, one: JobClass, sites: Sequence[PoolSite]) -> SetGroup:
    known = sites if one.inputs else ()
    homes = tuple(number for number, site in enumerate(known) if one.is_local_at(site.name))
    fitting = tuple(
        home for home in homes if sites[home].machine_count and sites[home].machine_cores >= one.cores
    )
    shares = tuple(share_at(one, site.name) for site in known)
    return SetGroup(index, SetKey(f"group{index}"), one.cores, one, homes, fitting, shares)
