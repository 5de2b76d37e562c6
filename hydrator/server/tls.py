"""TLS certificate of the server: the server reads changed files again, without a restart."""

import ssl
from pathlib import Path

import structlog

from hydrator.domain.errors import ConfigError
from hydrator.domain.files import WatchedFiles

_log = structlog.get_logger("hydrator")


class TlsCertificate:
    """A certificate and its key for TLS 1.2 and later.

    The server checks the files when a client connects. If it cannot use the new
    pair (for example, because the new key is missing), the server logs this once.
    The old pair stays in use until the files change again.

    Args:
        certificate: PEM, the server's own certificate first, then its chain.
        key: PEM, without a passphrase.

    Attributes:
        context: the TLS context of the server; each handshake uses the current pair.

    Raises:
        ConfigError: the pair cannot be used.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._watched = WatchedFiles(certificate, key)
        try:
            self._current_context = self._load_pair()
        except (OSError, ValueError) as error:
            raise ConfigError([f"publish.http.tls_certificate: {self._describe_error(error)}"]) from error
        self.context = _build_context()
        self.context.load_cert_chain(certificate, key, _reject_passphrase)
        # Python calls this method at the start of every handshake, even if the client sends no host name
        self.context.sni_callback = self._on_handshake

    def _on_handshake(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: ssl.SSLContext
    ) -> None:
        if self._watched.have_changed():
            self._renew()
        connection.context = self._current_context

    def _renew(self) -> None:
        try:
            self._current_context = self._load_pair()
        except (OSError, ValueError) as error:
            reason = f"{self._describe_error(error)}; the old certificate stays in use"
            _log.error("cannot load the new certificate", why=reason)
        else:
            _log.info("certificate reloaded", file=str(self._files[0]))

    def _load_pair(self) -> ssl.SSLContext:
        context = _build_context()
        context.load_cert_chain(*self._files, _reject_passphrase)
        return context

    def _describe_error(self, error: Exception) -> str:
        pair = f"{self._files[0]} with tls_key {self._files[1]}"
        if isinstance(error, ssl.SSLError):
            return f"{pair} is not a certificate with its key: {error.reason or error}"
        return f"{pair} cannot be read: {getattr(error, 'strerror', None) or error}"


def _build_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 0  # a hook is a new process each time, which has no session to continue
    return context


def _reject_passphrase() -> str:
    """Refuse a key with a passphrase: the daemon cannot ask a person for it."""
    raise ValueError("the key has a passphrase: use a key without one")
