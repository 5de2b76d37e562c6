"""The command line in the process of the test, as the installed script runs it, without a terminal."""

import io
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO

import pytest
import structlog

from hydrator.cli import main


def run_hydrator(
    *words: str | Path,
    cwd: Path | None = None,
    stdin: bytes = b"",
    encoding: str = "utf-8",
    **environment: str,
) -> CompletedProcess[bytes]:
    """Run ``hydrator words…``; the output includes that of tools which the command starts.

    The commands start at least twenty times faster than as a process.
    """
    argv = ["hydrator", *map(str, words)]
    status: int | str | None = 0
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.delenv("HYDRATOR_CONFIG", raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        if cwd:
            patch.chdir(cwd)
        patch.setattr(sys, "argv", argv)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        streams = [io.TextIOWrapper(file, encoding, write_through=True) for file in (out, err)]
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        patch.setattr(logging.root, "handlers", [])
        patch.setattr(logging.root, "level", logging.root.level)
        with _descriptors(out, err):
            try:
                main()
            except SystemExit as end:
                status = end.code
            for stream in streams:
                stream.flush()
        structlog.reset_defaults()
        said = []
        for stream, file in zip(streams, (out, err), strict=True):
            stream.detach()
            file.seek(0)
            said.append(file.read())
    assert status is None or isinstance(status, int), status
    return CompletedProcess(argv, status or 0, *said)


def run_text(*words: str | Path, cwd: Path | None = None, **environment: str) -> CompletedProcess[str]:
    """Run ``hydrator words…`` as :func:`run_hydrator` does; the output is text."""
    done = run_hydrator(*words, cwd=cwd, **environment)
    return CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def _descriptors(out: IO[bytes], err: IO[bytes]) -> Iterator[None]:
    """Let the processes that a command starts write to *out* and *err*."""
    before = [os.dup(1), os.dup(2)]
    try:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        yield
    finally:
        for number, copy in enumerate(before, 1):
            os.dup2(copy, number)
            os.close(copy)
