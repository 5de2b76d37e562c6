"""An auditor behind a veil: asked in opaque names, it asks about the private datasets they stand for."""

from dataclasses import replace

from .errors import CatalogueError, CatalogueUnreachable
from .model import Did, Seen
from .ports import Auditor
from .private import is_opaque
from .register import Register


class VeiledAuditor:
    """Another auditor; see :class:`hydrator.ports.Auditor` for its promises."""

    def __init__(self, inner: Auditor, register: Register) -> None:
        self._inner = inner
        self._register = register

    @property
    def name(self) -> str:
        return self._inner.name

    def verify(self, did: Did) -> Seen:
        """As :meth:`hydrator.ports.Auditor.verify`; a name that stands for nothing known is no verdict."""
        plain = self._register.plain(did) if is_opaque(did) else did
        if plain is None:
            raise CatalogueUnreachable(self.name, "what this name stands for is not known here")
        try:
            seen = self._inner.verify(plain)
        except CatalogueError as error:
            names = {plain: did} if plain != did else {}
            raise type(error)(error.catalogue, self._register.veil.scrubbed(error.reason, names)) from None
        return replace(seen, replicas=tuple(replace(replica, did=did) for replica in seen.replicas))

    def close(self) -> None:
        self._inner.close()
