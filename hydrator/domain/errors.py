"""Errors that this project raises, as a tree. Each class says who must act, or what the daemon does next.

``hydrator.cli.app`` turns them into exit statuses.

HydratorError                   has its facts as attributes, so logs need no parsing
├── ConfigError                 the operator acts: exit 2, all problems listed, no traceback
├── SecretMissing               the owner of the secret renews it: exit 1, a supervisor restarts the daemon
├── BadDid                      the author of the DID acts
├── CatalogueError              one catalogue, one cycle: the DIDs of the query become Unseen
│   ├── CatalogueUnreachable    timeout, 5xx, 429: the daemon queries it again
│   ├── CatalogueDenied         401, 403: no further query in this cycle, and an alert
│   ├── CatalogueGarbled        an unreadable answer, a bug of the daemon or the catalogue: keep the evidence
│   └── TooManyFiles            a dataset with more files than a job may list: the submitter acts
├── PoolError                   one collector or schedd, one cycle: the daemon uses the last answer from there
│   └── PoolDenied              the collector or schedd rejects the daemon's credentials or authorization
├── PublishError                one publisher, one cycle: the next cycle repeats the action
├── ClockStepped                the daemon ends, is started again, and reads all catalogues again
└── StateError                  the state directory is in use, or cannot be read or written
    ├── StateDamaged            a row cannot be decoded: the daemon renames the state and starts empty
    └── StateMissing            no daemon has run with this directory yet

If another service failed, the error sanitizes the service's text (:mod:`hydrator.domain.redaction`).
The result is one line of bounded length, without the secrets of this process.
"""

from collections.abc import Sequence

from .redaction import sanitize


def _rebuild(
    kind: type["HydratorError"], args: tuple[object, ...], facts: dict[str, object]
) -> "HydratorError":
    """Return an error of *kind* as it was before it was pickled: its constructor has other arguments."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class HydratorError(Exception):
    """The base class of all errors of this project; its text is one sentence for people."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to rebuild the error in another process."""
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigError(HydratorError):
    """An unusable configuration; *problems* lists every problem, each with its key."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class SecretMissing(HydratorError):
    """The configuration is valid, but a secret file that it names is missing, perhaps only for a moment."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems) + "; the daemon can start once the file exists")


class BadDid(HydratorError, ValueError):
    """A text that is not a valid DID; *text* is the input, *reason* says why it is not valid."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"{text[:300]!r} is not a DID: {reason}")
        self.text = text
        self.reason = reason


class CatalogueError(HydratorError):
    """A catalogue that could not answer. This does not mean that the catalogue has no replicas."""

    def __init__(self, catalogue: str, reason: str) -> None:
        self.catalogue = catalogue
        self.reason = sanitize(reason)
        super().__init__(f"catalogue {catalogue}: {self.reason}")


class CatalogueUnreachable(CatalogueError):
    """A catalogue could not be reached: timeout, refused connection, 5xx or 429. The next cycle retries."""


class CatalogueDenied(CatalogueError):
    """A catalogue answered 401 or 403: the operator must check the credentials and their permissions."""


class CatalogueGarbled(CatalogueError):
    """A catalogue's answer that cannot be decoded."""


class TooManyFiles(CatalogueError):
    """A dataset that exceeds the limit of files alone, or together with the datasets listed before it."""

    def __init__(self, catalogue: str, max_files: int) -> None:
        super().__init__(catalogue, f"the datasets have more than {max_files} files, the limit of one run")


class PoolError(HydratorError):
    """A failed query to an HTCondor daemon; *daemon* is the name of this daemon."""

    def __init__(self, daemon: str, reason: str) -> None:
        self.daemon = daemon
        self.reason = sanitize(reason)
        super().__init__(f"{daemon}: {self.reason}")


class PoolDenied(PoolError):
    """An HTCondor daemon rejected the client's credentials, or does not authorize the client's identity."""


class PublishError(HydratorError):
    """A publisher did not accept the ads, or the daemon could not read them back."""

    def __init__(self, publisher: str, reason: str) -> None:
        self.publisher = publisher
        self.reason = sanitize(reason)
        super().__init__(f"publisher {publisher}: {self.reason}")


class ClockStepped(HydratorError):
    """The wall clock was set while a cycle ran, so the cycle's ages are wrong."""

    def __init__(self) -> None:
        super().__init__("the wall clock was set while the cycle ran: its ads are not sent")


class StateError(HydratorError):
    """The state directory is in use by another daemon, or cannot be read or written."""


class StateUnreadable(StateError):
    """A file that is not a state, or one of a newer version, or of another user: an operator must act."""


class StateDamaged(StateUnreadable):
    """A row of the state cannot be decoded: another program or a bug has changed it."""


class StateMissing(StateError):
    """A state directory without state: no daemon has run with it yet."""
