"""Every failure we name, drawn as a tree: who acts next decides the class.

HydratorError                   carries facts as attributes, so logs need no parsing
├── ConfigError                 the operator acts: exit 2, all problems listed, no traceback
├── SecretMissing               whoever renews the secret acts: exit 1, a supervisor starts the daemon again
├── BadDid                      whoever wrote the DID acts
├── CatalogueError              this catalogue, this cycle: what it was asked becomes Unseen
│   ├── CatalogueUnreachable    timeout, 5xx, 429: asked again
│   ├── CatalogueDenied         401, 403: not asked again this cycle, alerted
│   ├── CatalogueGarbled        an answer we cannot read: our bug or theirs, keep the evidence
│   └── TooManyFiles            a dataset of more files than a job may list: who submits acts
├── PoolError                   this collector or schedd, this cycle: what it said before is kept
│   └── PoolDenied              it refused our credentials or our authorization
├── EventsError                 nobody tells us of events: polls go on without
├── PublishError                this publisher, this cycle: the action is due again next time
├── Fenced                      parts that a reload has replaced: their result counts for nothing
└── StateError                  the state directory is in use, or cannot be read or written
    └── StateMissing            no daemon has run with it yet

The reason of a failure of somebody else's part is made fit to be shown when it is raised: one line of bounded
length, without the secrets that this process keeps (:mod:`hydrator.domain.redaction`).
"""

from collections.abc import Sequence

from .redaction import sanitize


class HydratorError(Exception):
    """The root of all failures we name; its text is one sentence for people."""


class ConfigError(HydratorError):
    """A configuration that cannot be used; *problems* lists all that is wrong, each with its key."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class SecretMissing(HydratorError):
    """A configuration that is right, but for a file with a secret that may be there in a moment."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems) + "; the daemon can start once that file is there")


class BadDid(HydratorError, ValueError):
    """A text that is not a DID; *text* is what was given, *reason* what is wrong with it."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"{text[:300]!r} is not a DID: {reason}")
        self.text = text
        self.reason = reason


class CatalogueError(HydratorError):
    """A catalogue that could not answer; never to be read as 'it holds nothing'."""

    def __init__(self, catalogue: str, reason: str) -> None:
        self.catalogue = catalogue
        self.reason = sanitize(reason)
        super().__init__(f"catalogue {catalogue}: {self.reason}")


class CatalogueUnreachable(CatalogueError):
    """Timeout, refused connection, 5xx or 429: the next cycle asks again."""


class CatalogueDenied(CatalogueError):
    """401 or 403: the credentials or their rights need somebody."""


class CatalogueGarbled(CatalogueError):
    """An answer that cannot be read."""


class TooManyFiles(CatalogueError):
    """A dataset with more files than [submit].max_files, alone or with the others of its run."""

    def __init__(self, catalogue: str, max_files: int) -> None:
        super().__init__(
            catalogue, f"there are over {max_files} files, and [submit].max_files allows no more"
        )


class PoolError(HydratorError):
    """A daemon of the pool that could not be asked; *daemon* names it."""

    def __init__(self, daemon: str, reason: str) -> None:
        self.daemon = daemon
        self.reason = sanitize(reason)
        super().__init__(f"{daemon}: {self.reason}")


class PoolDenied(PoolError):
    """The daemon refused our credentials, or they lack the authorization it asks for."""


class EventsError(HydratorError):
    """A sender of events that does not let us listen; *source* names it."""

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = sanitize(reason)
        super().__init__(f"events of {source}: {self.reason}")


class PublishError(HydratorError):
    """A publisher that did not take, or could not show, what it was given."""

    def __init__(self, publisher: str, reason: str) -> None:
        self.publisher = publisher
        self.reason = sanitize(reason)
        super().__init__(f"publisher {publisher}: {self.reason}")


class SupersededByReload(HydratorError):
    """A step of parts that others have replaced; it must not be made."""

    def __init__(self) -> None:
        super().__init__("a reload has replaced these parts")


class StateError(HydratorError):
    """The state directory is in use by another daemon, or cannot be read or written."""


class StateMissing(StateError):
    """There is no state yet: no daemon has run with this directory."""
