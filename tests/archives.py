"""Tar files for tests."""

import io
import tarfile
from collections.abc import Mapping


def tar_of(members: Mapping[str, bytes | None], *more: tarfile.TarInfo) -> bytes:
    """An archive with files, folders (None), and *more* without content."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content or b""))
        for info in more:
            tar.addfile(info)
    return made.getvalue()
