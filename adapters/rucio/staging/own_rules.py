"""Rules of ours: the comment that marks them, the progress in their rows, and those that Rucio has now."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from adapters.rucio.responses import (
    BadRow,
    Record,
    Rows,
    iter_records,
    read_amount,
    read_choice,
    read_did,
    read_text,
    read_time,
)
from adapters.rucio.session.queries import QueryRunner
from adapters.rucio.session.transport import NotFound
from adapters.rucio.states import RULE_STATES, read_error, request_state
from hydrator.domain.errors import CatalogueGarbled
from hydrator.domain.model import Did, Site
from hydrator.domain.ports import Clock
from hydrator.domain.staging_ports import (
    OwnRequest,
    RefusalKind,
    RequestProgress,
    RequestState,
    StagingKind,
    StagingOrder,
    StagingRefused,
)

_BEGIN, _AT = "classad-hydrator ", " for jobs at "
_MAX_SITE_CHARS = 100  # a comment of Rucio has at most 250 characters
_REASONS = {
    RequestState.UNAPPROVED: "the rule waits for approval in Rucio",
    RequestState.SUSPENDED: "the rule is suspended in Rucio",
    RequestState.STUCK: "the rule is stuck",
    RequestState.FAILED: "no storage has the missing files",
}


@dataclass(frozen=True, slots=True)
class CommentMark:
    """The content of the comment of a rule of ours: tag, kind, and the site whose jobs need the data."""

    tag: str
    kind: StagingKind
    site: Site


@dataclass(frozen=True, slots=True)
class OwnRule:
    """The row of a rule of ours.

    *storage* is the rule's RSE expression: for rules of ours it is always the name of one RSE. The counts are
    those of the rule's locks, one for each file. *bytes_total* is None for a container.
    """

    id: str
    did: Did
    storage: str
    account: str
    mark: CommentMark
    state: RequestState
    files_done: int
    files_total: int
    bytes_total: int | None
    expires_at: datetime | None
    error: str

    @property
    def request(self) -> OwnRequest:
        """The rule as a request of ours."""
        return OwnRequest(self.mark.tag, self.id, self.mark.kind, self.mark.site, self.did)

    def has_ended(self, now: datetime) -> bool:
        """Return whether the rule's lifetime is over at *now*; Rucio deletes such a rule a little later."""
        return self.expires_at is not None and self.expires_at <= now

    def progress(self, ready_at: datetime | None = None) -> RequestProgress:
        """Return the progress; the bytes are an estimate from the share of the files."""
        files_total = self.files_total or None
        bytes_done = None
        if self.bytes_total is not None and files_total:
            bytes_done = self.bytes_total * self.files_done // files_total
        reason = _REASONS.get(self.state, "")
        return RequestProgress(
            self.request,
            self.state,
            self.files_done,
            files_total,
            bytes_done,
            self.bytes_total,
            self.expires_at,
            ready_at if self.state is RequestState.MOVING else None,
            f"{reason}: {self.error}" if reason and self.error else reason,
        )


def build_comment(order: StagingOrder) -> str:
    """Return the comment of the rule for *order*: a line for the data manager, with the tag at its end."""
    return f"{_BEGIN}{order.kind.value}{_AT}{order.site[:_MAX_SITE_CHARS]} [{order.tag}]"


def parse_comment(comment: object) -> CommentMark | None:
    """Return the mark in the *comment* of a rule; None if the rule is not ours."""
    if not isinstance(comment, str) or not (comment.startswith(_BEGIN) and comment.endswith("]")):
        return None
    text, _, tag = comment[len(_BEGIN) : -1].rpartition(" [")
    kind, _, site = text.partition(_AT)
    if kind not in list(StagingKind) or not site or not tag:
        return None
    return CommentMark(tag, StagingKind(kind), Site(site))


def iter_account_rules(rows: Rows, account: str, call: str) -> Iterator[OwnRule]:
    """Yield the rules of ours in *rows*, the answer to a query for all rules of *account*.

    Raises:
        BadRow: a row is not a rule of *account*, or a row of ours is unreadable: the answer is incomplete.
    """

    def check() -> Iterator[Record]:
        for row in iter_records(rows, call):
            if row.get("account") != account:
                raise BadRow(f"{call}: expected rules of {account}, got {str(row)[:80]!r}")
            yield row

    return iter_own_rules(check(), account, call)


def iter_own_rules(rows: Rows, account: str, call: str) -> Iterator[OwnRule]:
    """Yield the rules of *account* with our mark; skip all other rows, whatever they have.

    Raises:
        BadRow: a row is not a record, or a row of ours is unreadable: the answer is then incomplete.
    """
    for row in iter_records(rows, call):
        mark = parse_comment(row.get("comments"))
        if mark and row.get("account") == account:
            yield _parse_own_rule(row, mark, account, call)


def _parse_own_rule(row: Record, mark: CommentMark, account: str, call: str) -> OwnRule:
    did = read_did(row, call)
    if did is None:
        raise BadRow(f"{call}: a rule of ours is on {row['scope']}:{row['name']}, which is not a DID")
    error = read_error(row)
    done, moving, stuck = (
        _read_count(row, f"locks_{state}_cnt", call) for state in ("ok", "replicating", "stuck")
    )
    return OwnRule(
        read_text(row, "id", call),
        did,
        read_text(row, "rse_expression", call),
        account,
        mark,
        request_state(read_choice(RULE_STATES, row, "state", call), error),
        done,
        done + moving + stuck,
        None if row.get("bytes") is None else int(read_amount(row, "bytes", call)),
        read_time(row, "expires_at", call),
        error,
    )


def _read_count(row: Record, key: str, call: str) -> int:
    """Return the number at *key*; 0 for a negative number, which Rucio's counters of locks can have."""
    value = row.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRow(f"{call}: expected a whole number as {key!r}, got {str(value)[:80]!r}")
    return max(0, value)


_LIST_CALL, _GET_CALL = "list_replication_rules", "get_replication_rule"
_MAX_RULES = 200_000
_MAX_CONFIRMATIONS = 20
"""Rules that vanished from the list and are queried one by one; further ones are believed to be deleted."""


class AccountRules:
    """The rules with our account and our mark; one query lists them all, however many requests are active."""

    def __init__(self, queries: QueryRunner, clock: Clock) -> None:
        self._queries = queries
        self._clock = clock
        self._account = queries.settings.account
        self._seen: dict[str, tuple[datetime, OwnRule]] = {}

    @property
    def earlier_time(self) -> datetime:
        """The earlier of Rucio's time and our own: a rule has ended only if it has ended for both clocks."""
        now = self._clock()
        return min(now, self._queries.connection.server_time or now)

    def list_all(self, filters: Mapping[str, str] | None = None) -> list[OwnRule]:
        """Return all rules of ours that match *filters*, also ended ones that Rucio has not deleted yet.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """
        wanted = {"account": self._account, **(filters or {})}
        return self._queries.ask(
            lambda client: islice(client.list_replication_rules(wanted), _MAX_RULES + 1),
            lambda rows: list(iter_account_rules(_limit(rows), self._account, _LIST_CALL)),
        )

    def list_active(self) -> list[OwnRule]:
        """Return all rules of ours that have not ended; remember them for :meth:`find`.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """
        rules, now = self.list_all(), self._clock()
        self._check_against_last(rules)
        active = [rule for rule in rules if not rule.has_ended(self.earlier_time)]
        self._seen = {rule.id: (now, rule) for rule in active}
        return active

    def _check_against_last(self, rules: Sequence[OwnRule]) -> None:
        """Compare *rules* with the last answer: no rule changes its DID, and a missing rule must be deleted.

        Raises:
            CatalogueError: the answer is incomplete or about other rules, or that cannot be found out.
        """
        by_id = {rule.id: rule for rule in rules}
        last = {handle: rule for handle, (_, rule) in self._seen.items()}
        for handle in sorted(last.keys() & by_id.keys()):
            if by_id[handle].did != last[handle].did:
                reason = f"the rule {handle} of {last[handle].did} is now for {by_id[handle].did}"
                raise CatalogueGarbled(self._queries.name, f"{_LIST_CALL}: {reason}")
        for handle in sorted(last.keys() - by_id.keys())[:_MAX_CONFIRMATIONS]:
            if self._query(handle) is not None:
                raise CatalogueGarbled(self._queries.name, f"{_LIST_CALL} omits the rule {handle}")

    def find(self, request: OwnRequest, max_age: timedelta) -> OwnRule | None:
        """Return the rule of *request*, from an answer of at most *max_age*; None if it has ended.

        Raises:
            StagingRefused: the rule does not have our account and the tag of *request*.
            CatalogueError: the query failed.
        """
        read_at, rule = self._seen.get(request.handle, (None, None))
        if read_at is None or self._clock() - read_at > max_age:
            rule = self._query(request.handle)
        if rule is not None and rule.mark.tag != request.tag:
            raise self._not_ours(request.handle)
        return None if rule is None or rule.has_ended(self.earlier_time) else rule

    def forget(self, handle: str) -> None:
        """Query the rule *handle* again when it is needed."""
        self._seen.pop(handle, None)

    def _query(self, handle: str) -> OwnRule | None:
        try:
            rules = self._queries.ask(
                lambda client: client.get_replication_rule(handle),
                lambda row: list(iter_own_rules([row], self._account, _GET_CALL)),
            )
        except NotFound:
            return None
        if not rules or rules[0].id != handle:
            raise self._not_ours(handle)
        return rules[0]

    def _not_ours(self, handle: str) -> StagingRefused:
        reason = f"the rule {handle} does not have our account and our tag"
        return StagingRefused(self._queries.name, reason, RefusalKind.NOT_OURS)


def _limit(rows: Rows) -> Iterator[object]:
    """Yield *rows*; raise BadRow if there are too many: the rows after them are missing."""
    for number, row in enumerate(rows):
        if number == _MAX_RULES:
            raise BadRow(f"{_LIST_CALL}: the account has more than {_MAX_RULES} rules")
        yield row
