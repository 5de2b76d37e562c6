"""Catalogues and queues behind a veil: outside are opaque names, inside are the DIDs of private datasets.

This is the edge. Demand, memories, snapshot, ads, plans, state, logs, metrics
and answers know a private dataset by its opaque name only; catalogues are
asked about its DID.
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta

from hydrator.domain.bugs import Bugs
from hydrator.domain.errors import BadDid, CatalogueError, CatalogueUnreachable, PoolError
from hydrator.domain.model import (
    Did,
    Queue,
    QueuedJobs,
    Reading,
    Seen,
    Site,
    Survey,
    Unseen,
    parse_did,
)
from hydrator.domain.ports import Auditor, Catalogue, Clock, Probe, Queues
from hydrator.reconcile.snapshot.memory import Known
from hydrator.state.store import State

from .pseudonym_store import Register
from .pseudonyms import Veil, begin_of, is_masked, is_opaque
from .withheld import told_of_private, withheld, without_names

MOST_SHOWN = 2000
"""Characters of a text that is no DID, as a job's owner wrote it."""
SEARCH_AGAIN = timedelta(minutes=10)
_REST = timedelta(minutes=1)
"""After a search that failed; twice as long after each further one that failed or was of no use."""
_NOT_LOOKED_UP = "which dataset this name stands for could not be looked up"
_UNKNOWN = "this name was not exchanged here: no key of ours makes it of a dataset that is listed"


class VeiledCatalogue:
    """Another catalogue, asked in opaque names; see :class:`hydrator.domain.ports.Catalogue` for its promises.

    A name that the register does not know, after its file was lost, is looked
    for among all private datasets that the catalogue lists; one that is not
    found is Unseen: it may be another daemon's, or made up.
    """

    def __init__(self, inner: Catalogue, register: Register, clock: Clock) -> None:
        self._inner = inner
        self._register = register
        self._veil = register.veil
        self._clock = clock
        self._bugs = Bugs()
        self._searched: datetime | None = None
        self._sought: frozenset[Did] = frozenset()
        self._unfound = ""
        self._fruitless = 0
        self._rest_until: datetime | None = None

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :meth:`hydrator.domain.ports.Catalogue.read`; a private dataset asked for in plain is nowhere."""
        self._search(frozenset(did for did in dids if is_opaque(did) and not self._register.plain(did)))
        plain = {did: self._register.plain(did) if is_opaque(did) else did for did in dids}
        shown = {did for did in dids if is_masked(did) or self._veil.privacy.hides(did)}
        asked = frozenset(did for name, did in plain.items() if did and name not in shown)
        names = {did: name for name, did in plain.items() if did and name != did}
        survey = self._asked(asked, names)
        readings: dict[Did, Reading] = {}
        for name, did in plain.items():
            if name in shown:
                readings[name] = Seen(survey.at)
            elif did is None:
                readings[name] = Unseen(self._unfound or _UNKNOWN)
            elif did in survey.readings:
                readings[name] = self._veiled(survey.readings[did], did, name)
        return replace(survey, readings=readings)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """As :meth:`hydrator.domain.ports.Catalogue.find`; private datasets under their opaque names."""
        try:
            found = self._inner.find(patterns)
        except CatalogueError as error:
            why = without_names(self._veil.scrubbed(error.reason))
            raise type(error)(error.catalogue, why) from None
        except Exception as error:  # noqa: BLE001 - whatever it is, its text may name a dataset
            raise _nameless(error) from None
        self._register.learn(found)
        return frozenset(self._veil.opaque(did) for did in found)

    def close(self) -> None:
        self._inner.close()

    def _search(self, unknown: frozenset[Did]) -> None:
        """Learn the names of all private datasets here, when one is *unknown* that was not sought lately.

        Anybody may make names up, and a search is expensive: one that failed, or was of no use again, is not
        repeated in each poll.
        """
        now = self._clock()
        lately = self._searched is not None and now - self._searched < SEARCH_AGAIN
        rests = self._rest_until is not None and timedelta(0) < self._rest_until - now <= SEARCH_AGAIN
        if not unknown or rests or (lately and unknown <= self._sought):
            return
        part = f"the search for opaque names in catalogue {self.name}"
        try:
            self._register.learn(self._inner.find(self._veil.privacy.searches()), unknown)
        except CatalogueError as error:
            why = without_names(self._veil.scrubbed(error.reason))
            self._unfound = f"{_NOT_LOOKED_UP}: {why}"
            self._rest(now, failed=True)
            return
        except Exception as error:  # noqa: BLE001 - it fails these names alone
            self._unfound = f"{_NOT_LOOKED_UP}: {self._bugs.caught(part, _nameless(error))}"
            self._rest(now, failed=True)
            return
        self._bugs.over(part)
        self._searched, self._sought, self._unfound = now, unknown, ""
        if all(self._register.plain(name) for name in unknown):
            self._fruitless, self._rest_until = 0, None
        else:
            self._rest(now, failed=False)

    def _rest(self, now: datetime, *, failed: bool) -> None:
        self._fruitless += 1
        rest = min(_REST * 2 ** min(self._fruitless - 1, 10), SEARCH_AGAIN)
        self._rest_until = now + (rest if failed or self._fruitless > 1 else timedelta(0))

    def _asked(self, dids: frozenset[Did], names: Mapping[Did, Did]) -> Survey:
        try:
            return self._inner.read(dids)
        except CatalogueError as error:
            raise self._scrubbed(error, names) from None
        except Exception as error:  # noqa: BLE001 - whatever it is, its text may name a dataset
            raise _nameless(error) from None

    def _scrubbed(self, error: CatalogueError, names: Mapping[Did, Did]) -> CatalogueError:
        why = self._veil.scrubbed(error.reason, names)
        return type(error)(error.catalogue, without_names(why) if names else why)

    def _veiled(self, reading: Reading, did: Did, name: Did) -> Reading:
        private = name != did
        if isinstance(reading, Unseen):
            return Unseen(withheld(reading.reason) if private else self._veil.scrubbed(reading.reason))
        twins = frozenset(map(self._veil.opaque, reading.twins))
        return _of_private(replace(reading, twins=twins), name) if private else replace(reading, twins=twins)


def _of_private(reading: Seen, name: Did) -> Seen:
    """The *reading* of a private dataset under its opaque *name*, without words that may name its files."""
    replicas = (replace(one, did=name, told=told_of_private(one.told)) for one in reading.replicas)
    return replace(reading, replicas=tuple(replicas))


class VeiledAuditor:
    """Another auditor, asked in opaque names; see :class:`hydrator.domain.ports.Auditor`."""

    def __init__(self, inner: Auditor, register: Register) -> None:
        self._inner = inner
        self._register = register

    @property
    def name(self) -> str:
        return self._inner.name

    def verify(self, did: Did) -> Seen:
        """As :meth:`hydrator.domain.ports.Auditor.verify`."""
        plain = _plain(did, self._register, self.name)
        try:
            seen = self._inner.verify(plain)
        except CatalogueError as error:
            scrubbed = self._register.veil.scrubbed(error.reason)
            why = withheld(error.reason) if plain != did else scrubbed
            raise type(error)(error.catalogue, why) from None
        seen = replace(seen, twins=frozenset(map(self._register.veil.opaque, seen.twins)))
        return _of_private(seen, did) if plain != did else seen

    def close(self) -> None:
        self._inner.close()


class VeiledProbe:
    """Another probe, asked in opaque names; see :class:`hydrator.domain.ports.Probe`."""

    def __init__(self, inner: Probe, register: Register) -> None:
        self._inner = inner
        self._register = register

    def looks_at(self, catalogue: str, site: Site) -> bool:
        """As :meth:`hydrator.domain.ports.Probe.looks_at`."""
        return self._inner.looks_at(catalogue, site)

    def look(self, catalogue: str, did: Did, site: Site) -> bool | None:
        """As :meth:`hydrator.domain.ports.Probe.look`; None for a name that stands for nothing we know."""
        plain = self._register.plain(did) if is_opaque(did) else did
        return None if plain is None or is_masked(plain) else self._inner.look(catalogue, plain, site)


def _nameless(error: Exception) -> Exception:
    """Return *error* as one without its text, which may name a private dataset."""
    return RuntimeError(type(error).__name__).with_traceback(error.__traceback__)


def _plain(did: Did, register: Register, catalogue: str) -> Did:
    """The dataset that *did* stands for.

    Raises:
        CatalogueUnreachable: nobody knows; nothing is concluded from that.
    """
    plain = register.plain(did) if is_opaque(did) else did
    if plain is None or is_masked(plain):
        raise CatalogueUnreachable(catalogue, _UNKNOWN)
    return plain


class VeiledQueues:
    """Queues in which a private dataset that a job names in plain has a name that nobody advertises."""

    def __init__(self, inner: Queues, veil: Veil, default_scope: str | None) -> None:
        self._inner = inner
        self._veil = veil
        self._default_scope = default_scope

    def wanted(self) -> Mapping[str, Queue | Unseen]:
        """As :meth:`hydrator.domain.ports.Queues.wanted`."""
        try:
            answers = self._inner.wanted()
        except PoolError as error:
            raise type(error)(error.daemon, self._veil.scrubbed(error.reason)) from None
        return {schedd: self._veiled(answer) for schedd, answer in answers.items()}

    def _veiled(self, answer: Queue | Unseen) -> Queue | Unseen:
        if isinstance(answer, Unseen):
            return Unseen(self._veil.scrubbed(answer.reason))
        groups = (
            QueuedJobs(tuple(self._text(text) for text in group.datasets), group.jobs)
            for group in answer.wants
        )
        return replace(answer, wants=tuple(groups))

    def _text(self, text: str) -> str:
        try:
            did = parse_did(text, self._default_scope)
        except BadDid:
            return self._veil.privacy.scrubbed(begin_of(text, MOST_SHOWN))
        return self._veil.masked(did) if self._veil.privacy.hides(did) else text


def _known(did: Did, known: Known) -> Known:
    """Return what is *known* of a dataset, without words about a private one that an older version kept."""
    if not is_opaque(did):
        return known
    here, before = (
        {site: replace(fact, told=told_of_private(fact.told)) for site, fact in facts.items()}
        for facts in (known.here, known.before)
    )
    return replace(known, here=here, before=before)


def veiled_state(state: State, veil: Veil) -> State:
    """What was remembered before a dataset became private, without its name.

    Demand in plain stays known; ads that name it are dropped and made anew.
    """
    hides = veil.privacy.hides
    memories = {
        name: replace(
            memory,
            known={
                did: _known(did, replace(known, twins=frozenset(map(veil.opaque, known.twins))))
                for did, known in memory.known.items()
                if not hides(did)
            },
            unseen={
                did: withheld(why) if is_opaque(did) else veil.scrubbed(why)
                for did, why in memory.unseen.items()
                if not hides(did)
            },
            failure=memory.failure and without_names(veil.scrubbed(memory.failure)),
        )
        for name, memory in state.memories.items()
    }
    wants = tuple(
        replace(want, dids=tuple(sorted(veil.masked(did) if hides(did) else did for did in want.dids)))
        for want in state.demand.wants
    )
    refused = {veil.privacy.scrubbed(text): why for text, why in state.demand.refused.items()}
    return replace(
        state,
        memories=memories,
        demand=replace(state.demand, wants=wants, refused=refused),
        found={name: frozenset(map(veil.opaque, dids)) for name, dids in state.found.items()},
        held={
            site: replace(held, gone={did: polls for did, polls in held.gone.items() if not hides(did)})
            for site, held in state.held.items()
        },
        audit=replace(
            state.audit,
            corrections={
                key: found for key, found in state.audit.corrections.items() if not hides(key[0].did)
            },
        ),
        rollbacks={
            site: one
            for site, one in state.rollbacks.items()
            if not any(veil.privacy.mentioned(literal) for _, literal in one.ad.content)
        },
        ads={
            site: ad
            for site, ad in state.ads.items()
            if not any(veil.privacy.mentioned(literal) for _, literal in ad.content)
        },
    )
