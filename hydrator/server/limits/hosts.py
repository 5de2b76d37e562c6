"""Host names that the HTTP server answers to.

A web page in a browser can point its own name to the server's address (DNS
rebinding); its scripts then read every public answer. The browser sends the
page's name in the Host header, so the server refuses other names than its own.
It never refuses an IP address: a page cannot point an address to another server.
"""

import socket
from collections.abc import Iterable
from ipaddress import ip_address


class AllowedHosts:
    """A set of host names, compared without regard to letter case.

    Args:
        names: names without a port; ``*.example.org`` allows every name below ``example.org``.
    """

    def __init__(self, names: Iterable[str]) -> None:
        lower = {name.lower().rstrip(".") for name in names}
        self._names = {name for name in lower if not name.startswith("*.")}
        self._domain_suffixes = tuple(name[1:] for name in lower if name.startswith("*."))

    def is_allowed(self, header: str) -> bool:
        """Return whether a Host header, with or without a port, has an allowed name."""
        name = _without_port(header.strip().lower()).rstrip(".")
        if _is_address(name):
            return True
        return name in self._names or bool(self._domain_suffixes and name.endswith(self._domain_suffixes))


def build_allowed_hosts(host: str, extra_names: Iterable[str]) -> AllowedHosts:
    """Build the allowed names of a server: *host*, localhost, this machine's name, and *extra_names*."""
    return AllowedHosts({"localhost", host, socket.gethostname(), *extra_names})


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    name, colon, port = header.rpartition(":")
    return name if colon and (not port or (port.isascii() and port.isdigit())) else header


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
