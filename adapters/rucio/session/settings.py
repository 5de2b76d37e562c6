"""Settings of one Rucio server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from adapters.http.oauth import ClientSettings
from hydrator.domain.model import Site


@dataclass(frozen=True, slots=True)
class RucioSettings:
    """Settings of the connection to one Rucio server, and the map from storage elements to sites.

    Mapping: ``sites`` maps RSEs to sites. For any other RSE, the RSE attribute ``site_attribute`` has the
    name of the site (None: do not query attributes).

    Time: ``timeout`` limits one read of a socket; after ``deadline`` a poll begins no further query.

    Login: ``token_dir`` is a private folder of the process, created with mode 0700. With ``auth_type`` token,
    the token is in ``token_file``, or ``token_command`` prints it. With oidc, the provider in ``oidc`` issues
    the token. With x509, the client certificate is ``client_cert``, its key ``client_key`` (None: the key is
    in ``client_cert``, as in a proxy). The daemon reads ``password_file`` for each login. ``password`` is for
    a password that is not in a file.

    Counting: while a dataset's summary rows are complete and unchanged, polls use its last count again, until
    it is older than ``verify_every`` (0: every poll counts all datasets).
    ``deep_calls`` is the largest number of counts in one poll. A dataset that must wait for a later poll
    keeps its state; it is Unseen if it was never counted or has changed.

    States: if no rule holds data for ``expiry_margin``, the data may be gone before a job ends.
    ``trust_caches``: a complete dataset in a volatile storage element counts as complete.

    Load: ``calls_per_second`` is the largest rate of queries. The daemon also pauses when Rucio asks for it
    (429, 503). ``twins_every`` is the interval of the search for DIDs that differ in letter case only (None:
    no search).
    """

    name: str
    url: str
    account: str
    token_dir: Path
    auth_url: str | None = None
    auth_type: Literal["userpass", "token", "oidc", "x509"] = "userpass"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: Path | None = None
    token_file: Path | None = None
    token_command: tuple[str, ...] = ()
    oidc: ClientSettings | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    ca_cert: Path | None = None
    vo: str | None = None
    timeout: timedelta = timedelta(seconds=30)
    deadline: timedelta = timedelta(seconds=120)
    site_attribute: str | None = "site"
    sites: Mapping[str, str] = field(default_factory=dict)
    attributes_every: timedelta = timedelta(minutes=10)
    verify_every: timedelta = timedelta(minutes=10)
    expiry_margin: timedelta = timedelta(hours=6)
    trust_caches: bool = False
    twins_every: timedelta | None = timedelta(hours=1)
    deep_calls: int = 2000
    calls_per_second: float = 50
    batch: int = 1000

    @property
    def has_external_token(self) -> bool:
        """Return True if Rucio does not issue the token; rucio-clients then does not log in."""
        return self.auth_type in {"token", "oidc"}

    def site_of(self, storage: str) -> Site | None:
        """Return the site that ``sites`` configures for a storage element."""
        site = self.sites.get(storage)
        return Site(site) if site else None
