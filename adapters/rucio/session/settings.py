"""How to ask one Rucio server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from adapters.http.oauth import ClientSettings
from hydrator.domain.model import Site


@dataclass(frozen=True, slots=True)
class RucioSettings:
    """How to ask one Rucio server, and how its storage elements map to sites.

    ``sites`` (RSE to site) wins over ``site_attribute``, the RSE attribute
    that names the site (None: no attribute is asked for). ``timeout`` bounds
    one read of a socket, ``deadline`` a whole poll. ``token_dir`` is private
    to us, created 0700. Where ``auth_type`` is token, others make it: in ``token_file``, or
    ``token_command`` prints it; where it is oidc, we get it from the provider of ``oidc``;
    where it is x509, we show ``client_cert`` with ``client_key`` (None: in the same file, as in a proxy).
    A ``password_file`` is read for each login; ``password`` is one that is not in a file.
    In ``verify_every`` each dataset that is believed without being counted, since its cheap row did not
    change, is verified once, between polls (0: nothing is believed, each poll counts all); ``deep_calls``
    is how many one poll may count; what waits for its turn is as it was, and Unseen where it
    was never counted or changed. ``count_first``: whether a new dataset must have been counted even
    where its cheap rows are whole.
    ``expiry_margin``: data that no rule holds for so long is not to start a job on. ``trust_caches``:
    whether what is whole in a volatile storage element counts as whole.
    ``calls_per_second`` is the most it is asked, ``concurrent_calls`` how many calls at a time; it waits
    besides when Rucio says so (429, 503).
    ``recall_samples``: of how many recalls from tape one poll may ask what they wait for.
    An answer has at most ``max_bytes``, unpacked, and ``max_values`` JSON values.
    ``twins_every``: how often to look for DIDs that differ in letter case only (None: never).
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
    sites: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    attributes_every: timedelta = timedelta(minutes=10)
    verify_every: timedelta = timedelta(minutes=10)
    expiry_margin: timedelta = timedelta(hours=6)
    trust_caches: bool = False
    twins_every: timedelta | None = timedelta(hours=1)
    deep_calls: int = 2000
    count_first: bool = True
    recall_samples: int = 20
    calls_per_second: float = 50
    concurrent_calls: int = 1
    batch: int = 1000
    max_parts: int = 10_000
    max_bytes: int = 64_000_000
    max_values: int = 2_000_000

    def site_of(self, storage: str) -> Site | None:
        """The configured site of a storage element."""
        site = self.sites.get(storage)
        return Site(site) if site else None
