"""Wrappers that translate between the pseudonyms and the DIDs of private datasets.

Demand, memories, snapshot, ads, plans, state, logs, metrics and answers contain only the pseudonym of a
private dataset. Queries to catalogues contain its DID.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta

from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import BadDid, CatalogueError, CatalogueUnreachable, PoolError
from hydrator.domain.model import (
    Did,
    QueuedJobs,
    Reading,
    ScheddDemand,
    Seen,
    Site,
    Survey,
    Unseen,
    parse_did,
)
from hydrator.domain.pool_ports import Queues
from hydrator.domain.ports import Auditor, Catalogue, Clock, Probe
from hydrator.domain.ports.data_needs import DataNeed, DataNeeds

from .pseudonym_store import PseudonymStore
from .pseudonyms import Pseudonymizer, is_masked, is_opaque, truncate_at_name
from .withheld import redact_names, redact_provenance, redact_reason

MAX_SHOWN_CHARS = 2000
"""A job may name a text that is not a DID. Show at most this many characters of such a text."""
SEARCH_INTERVAL = timedelta(minutes=10)
_SEARCH_BACKOFF = timedelta(minutes=1)
"""The wait after a failed search. The wait doubles after each further search without success."""
_LOOKUP_FAILED_REASON = "the dataset of this name could not be looked up"
_UNKNOWN_NAME_REASON = "this name was not exchanged here: no key of this daemon makes it of a listed dataset"


class PseudonymizedCatalogue:
    """A catalogue whose callers use pseudonyms; it queries another catalogue by the real names.

    See :class:`hydrator.domain.ports.Catalogue` for the promises of the methods.

    A pseudonym may be unknown, for example because the store of pseudonyms was lost. Then the wrapper lists
    all private datasets of the catalogue and computes their pseudonyms. If no dataset has the unknown
    pseudonym, the reading is Unseen: another daemon may have made this pseudonym, or a user invented it.
    """

    def __init__(self, inner: Catalogue, pseudonyms: PseudonymStore, clock: Clock) -> None:
        self._inner = inner
        self._pseudonyms = pseudonyms
        self._pseudonymizer = pseudonyms.pseudonymizer
        self._clock = clock
        self._bugs = BugReporter()
        self._searched_at: datetime | None = None
        self._sought_pseudonyms: frozenset[Did] = frozenset()
        self._not_found_reason = ""
        self._fruitless_searches = 0
        self._backoff_until: datetime | None = None

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :meth:`hydrator.domain.ports.Catalogue.read`.

        If *dids* has a private DID under its real name, return a reading without replicas for this DID.
        """
        self._search(frozenset(did for did in dids if is_opaque(did) and not self._pseudonyms.resolve(did)))
        plain = {did: self._pseudonyms.resolve(did) if is_opaque(did) else did for did in dids}
        plain_names = {did for did in dids if is_masked(did) or self._pseudonymizer.privacy.is_private(did)}
        dids_to_ask = frozenset(did for name, did in plain.items() if did and name not in plain_names)
        names = {did: name for name, did in plain.items() if did and name != did}
        survey = self._read_inner(dids_to_ask, names)
        readings: dict[Did, Reading] = {}
        for name, did in plain.items():
            if name in plain_names:
                readings[name] = Seen(survey.started_at)
            elif did is None:
                readings[name] = Unseen(self._not_found_reason or _UNKNOWN_NAME_REASON)
            elif did in survey.readings:
                readings[name] = self._pseudonymize_reading(survey.readings[did], did, name)
        return replace(survey, readings=readings)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :meth:`hydrator.domain.ports.Catalogue.find`; return private datasets by their pseudonyms."""
        try:
            dids = self._inner.find(patterns)
        except CatalogueError as error:
            why = redact_names(self._pseudonymizer.redact(error.reason))
            raise type(error)(error.catalogue, why) from None
        except Exception as error:  # noqa: BLE001 - the text of any error may name a dataset
            raise _strip_error_text(error) from None
        self._pseudonyms.learn(dids)
        return frozenset(self._pseudonymizer.pseudonym(did) for did in dids)

    def close(self) -> None:
        self._inner.close()

    def _search(self, unknown_names: frozenset[Did]) -> None:
        """Learn all private datasets of the catalogue, to find those with the pseudonyms *unknown_names*.

        Do nothing if these pseudonyms were searched recently. Any user can invent pseudonyms, and a search is
        expensive. So after a failed search, or after two searches that did not find a pseudonym, wait before
        the next search.
        """
        now = self._clock()
        is_recent = self._searched_at is not None and now - self._searched_at < SEARCH_INTERVAL
        is_backing_off = (
            self._backoff_until is not None and timedelta(0) < self._backoff_until - now <= SEARCH_INTERVAL
        )
        if not unknown_names or is_backing_off or (is_recent and unknown_names <= self._sought_pseudonyms):
            return
        part = f"the search for pseudonyms in catalogue {self.name}"
        try:
            self._pseudonyms.learn(
                self._inner.find(self._pseudonymizer.privacy.search_patterns()), unknown_names
            )
        except CatalogueError as error:
            why = redact_names(self._pseudonymizer.redact(error.reason))
            self._not_found_reason = f"{_LOOKUP_FAILED_REASON}: {why}"
            self._back_off(now, is_failure=True)
            return
        except Exception as error:  # noqa: BLE001 - a bug must not stop the poll
            self._not_found_reason = (
                f"{_LOOKUP_FAILED_REASON}: {self._bugs.report(part, _strip_error_text(error))}"
            )
            self._back_off(now, is_failure=True)
            return
        self._bugs.mark_resolved(part)
        self._searched_at, self._sought_pseudonyms, self._not_found_reason = now, unknown_names, ""
        if all(self._pseudonyms.resolve(name) for name in unknown_names):
            self._fruitless_searches, self._backoff_until = 0, None
        else:
            self._back_off(now, is_failure=False)

    def _back_off(self, now: datetime, *, is_failure: bool) -> None:
        self._fruitless_searches += 1
        wait = min(_SEARCH_BACKOFF * 2 ** min(self._fruitless_searches - 1, 10), SEARCH_INTERVAL)
        self._backoff_until = now + (wait if is_failure or self._fruitless_searches > 1 else timedelta(0))

    def _read_inner(self, dids: frozenset[Did], names: Mapping[Did, Did]) -> Survey:
        try:
            return self._inner.read(dids)
        except CatalogueError as error:
            raise self._redact_error(error, names) from None
        except Exception as error:  # noqa: BLE001 - the text of any error may name a dataset
            raise _strip_error_text(error) from None

    def _redact_error(self, error: CatalogueError, names: Mapping[Did, Did]) -> CatalogueError:
        why = self._pseudonymizer.redact(error.reason, names)
        return type(error)(error.catalogue, redact_names(why) if names else why)

    def _pseudonymize_reading(self, reading: Reading, did: Did, name: Did) -> Reading:
        is_private = name != did
        if isinstance(reading, Unseen):
            return Unseen(
                redact_reason(reading.reason) if is_private else self._pseudonymizer.redact(reading.reason)
            )
        twins = frozenset(map(self._pseudonymizer.pseudonym, reading.case_variants))
        return (
            _private_reading(replace(reading, case_variants=twins), name)
            if is_private
            else replace(reading, case_variants=twins)
        )


def _private_reading(reading: Seen, name: Did) -> Seen:
    """Return the *reading* under the pseudonym *name*, without words that may name the dataset's files."""
    replicas = (
        replace(one, did=name, provenance=redact_provenance(one.provenance)) for one in reading.replicas
    )
    return replace(reading, replicas=tuple(replicas))


class PseudonymizedAuditor:
    """An auditor whose callers use pseudonyms; see :class:`hydrator.domain.ports.Auditor`."""

    def __init__(self, inner: Auditor, pseudonyms: PseudonymStore) -> None:
        self._inner = inner
        self._pseudonyms = pseudonyms

    @property
    def name(self) -> str:
        return self._inner.name

    def verify(self, did: Did) -> Seen:
        """See :meth:`hydrator.domain.ports.Auditor.verify`."""
        plain = _resolve_did(did, self._pseudonyms, self.name)
        try:
            seen = self._inner.verify(plain)
        except CatalogueError as error:
            redacted = self._pseudonyms.pseudonymizer.redact(error.reason)
            why = redact_reason(error.reason) if plain != did else redacted
            raise type(error)(error.catalogue, why) from None
        seen = replace(
            seen, case_variants=frozenset(map(self._pseudonyms.pseudonymizer.pseudonym, seen.case_variants))
        )
        return _private_reading(seen, did) if plain != did else seen

    def close(self) -> None:
        self._inner.close()


class PseudonymizedProbe:
    """A probe whose callers use pseudonyms; see :class:`hydrator.domain.ports.Probe`."""

    def __init__(self, inner: Probe, pseudonyms: PseudonymStore) -> None:
        self._inner = inner
        self._pseudonyms = pseudonyms

    def can_check(self, catalogue: str, site: Site) -> bool:
        """See :meth:`hydrator.domain.ports.Probe.can_check`."""
        return self._inner.can_check(catalogue, site)

    def check_dataset(self, catalogue: str, did: Did, site: Site) -> bool | None:
        """See :meth:`hydrator.domain.ports.Probe.check_dataset`; return None for an unknown pseudonym."""
        plain = self._pseudonyms.resolve(did) if is_opaque(did) else did
        return (
            None if plain is None or is_masked(plain) else self._inner.check_dataset(catalogue, plain, site)
        )


def _strip_error_text(error: Exception) -> Exception:
    """Return a RuntimeError with the type of *error*, but not its text, which may name a private dataset."""
    return RuntimeError(type(error).__name__).with_traceback(error.__traceback__)


def _resolve_did(did: Did, pseudonyms: PseudonymStore, catalogue: str) -> Did:
    """Return the real DID of *did*, a pseudonym or a public DID.

    Raises:
        CatalogueUnreachable: the pseudonym is unknown. This does not mean that the dataset does not exist.
    """
    plain = pseudonyms.resolve(did) if is_opaque(did) else did
    if plain is None or is_masked(plain):
        raise CatalogueUnreachable(catalogue, _UNKNOWN_NAME_REASON)
    return plain


class PseudonymizedQueues:
    """Queues that return a placeholder for a private dataset that a job names by its real name.

    The daemon publishes no ad with the real name.
    """

    def __init__(self, inner: Queues, pseudonymizer: Pseudonymizer, default_scope: str | None) -> None:
        self._inner = inner
        self._pseudonymizer = pseudonymizer
        self._default_scope = default_scope

    def read_demand(self) -> Mapping[str, ScheddDemand | Unseen]:
        """See :meth:`hydrator.domain.pool_ports.Queues.read_demand`."""
        try:
            answers = self._inner.read_demand()
        except PoolError as error:
            raise type(error)(error.daemon, self._pseudonymizer.redact(error.reason)) from None
        return {schedd: self._pseudonymize_answer(answer) for schedd, answer in answers.items()}

    def _pseudonymize_answer(self, answer: ScheddDemand | Unseen) -> ScheddDemand | Unseen:
        if isinstance(answer, Unseen):
            return Unseen(self._pseudonymizer.redact(answer.reason))
        return replace(answer, job_groups=tuple(map(self._mask_group, answer.job_groups)))

    def _mask_group(self, group: QueuedJobs) -> QueuedJobs:
        """Return *group* with placeholders for private datasets; without its key, which has their names."""
        datasets = tuple(map(self._mask_text, group.datasets))
        return group if datasets == group.datasets else replace(group, datasets=datasets, key=None)

    def _mask_text(self, text: str) -> str:
        return mask_text(text, self._pseudonymizer, self._default_scope)


class PseudonymizedNeeds:
    """Data needs without the real names of private datasets; see :class:`PseudonymizedQueues`.

    A job with a private dataset needs its pseudonym, or a placeholder if the job uses the real name.
    """

    def __init__(self, inner: DataNeeds, pseudonymizer: Pseudonymizer, default_scope: str | None) -> None:
        self._inner = inner
        self._pseudonymizer = pseudonymizer
        self._default_scope = default_scope

    def read_needs(self) -> Mapping[str, Sequence[DataNeed] | Unseen]:
        """See :meth:`hydrator.domain.ports.data_needs.DataNeeds.read_needs`."""
        try:
            answers = self._inner.read_needs()
        except PoolError as error:
            raise type(error)(error.daemon, self._pseudonymizer.redact(error.reason)) from None
        return {
            schedd: Unseen(self._pseudonymizer.redact(answer.reason))
            if isinstance(answer, Unseen)
            else tuple(replace(one, datasets=tuple(map(self._mask_text, one.datasets))) for one in answer)
            for schedd, answer in answers.items()
        }

    def _mask_text(self, text: str) -> str:
        return mask_text(text, self._pseudonymizer, self._default_scope)

    def close(self) -> None:
        """See :meth:`hydrator.domain.ports.data_needs.DataNeeds.close`."""
        self._inner.close()


def mask_text(text: str, pseudonymizer: Pseudonymizer, default_scope: str | None) -> str:
    """Return *text*, a dataset's name in a job, or a placeholder if it is the real name of a private one."""
    try:
        did = parse_did(text, default_scope)
    except BadDid:
        return pseudonymizer.privacy.redact(truncate_at_name(text, MAX_SHOWN_CHARS))
    return pseudonymizer.mask(did) if pseudonymizer.privacy.is_private(did) else text
