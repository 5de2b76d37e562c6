"""Examination of the installation: catalogues, folders, secrets that other users may read."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from hydrator.config.network import NetworkSettings
from hydrator.diagnostics.check.findings import Finding, advice, failure, name_list, ok, warning
from hydrator.domain.model import Site
from hydrator.domain.ports import Catalogue
from hydrator.domain.text import format_count


def check_memory(limit_bytes: int | None, needed_bytes: int) -> Iterator[Finding]:
    """Compare the memory limit of this process's control group with what the daemon and its workers may use.

    Args:
        limit_bytes: the limit; None without one.
        needed_bytes: the limits of the workers, and room for the daemon.
    """
    if limit_bytes is not None and limit_bytes < needed_bytes:
        yield warning(
            "memory",
            f"the limit here is {limit_bytes // 1_000_000} MB, but the daemon and its workers may use"
            f" {needed_bytes // 1_000_000} MB; in a container the kernel would end them all together",
            "raise the memory limit of the unit or pod: docs/operators/service.md, Memory",
        )


def check_virtual_organisations(servers: Mapping[str, tuple[str, str]]) -> Iterator[Finding]:
    """Warn about catalogues of one Rucio server for several VOs.

    Each VO has names of its own, but jobs name a dataset without the VO.

    Args:
        servers: the address and the VO of each Rucio catalogue, by its name.
    """
    by_url: dict[str, dict[str, str]] = {}
    for name, (url, vo) in servers.items():
        by_url.setdefault(url.rstrip("/").casefold().removesuffix(":443"), {})[vo] = name
    for names in by_url.values():
        if len(names) > 1:
            yield warning(
                "catalogue",
                f"{', '.join(sorted(names.values()))} are VOs of one Rucio: a name that several of them"
                " have counts as one dataset, with the best state of all",
                "run one daemon for each VO, or make sure that their scopes differ",
            )


def check_rates(network: NetworkSettings, *, is_measured: bool) -> Iterator[Finding]:
    """Advise if the pacing of reads has no other figure than the built-in rate.

    Args:
        network: the operator's rates.
        is_measured: True if transfers between sites were measured.
    """
    if is_measured or network.model_fields_set & {"default_gbit_per_second", "links"}:
        return
    yield advice(
        "network",
        f"every link counts as {network.default_gbit_per_second:g} Gb/s, the built-in rate, when jobs are"
        " let read from elsewhere: nothing was measured yet, and no rate is configured",
        "set [network] default_gbit_per_second, or [[network.links]], to what jobs elsewhere can together"
        " read from a site: docs/operators/placement.md",
    )


def check_catalogue(catalogue: Catalogue, sites: set[Site]) -> Iterator[Finding]:
    survey = catalogue.read(frozenset())
    sites |= survey.sites
    yield ok(
        catalogue.name,
        f"answers, and covers {format_count(len(survey.sites), 'site')}: {name_list(survey.sites)}",
    )
    if survey.unmapped_storages:
        yield warning(
            catalogue.name,
            f"{len(survey.unmapped_storages)} storage elements have no site:"
            f" {name_list(survey.unmapped_storages)}",
            "give each RSE its site attribute, or name its site under [catalogue.rse_sites]",
        )


def check_folder(folder: Path, subject: str, key: str) -> Iterator[Finding]:
    existing = next(parent for parent in (folder, *folder.parents) if os.access(parent, os.F_OK))
    if os.access(existing, os.W_OK | os.X_OK):
        yield ok(subject, f"{folder} is writable")
    else:
        yield failure(
            subject, f"{existing} is not writable", f"change the owner of this folder, or change {key}"
        )


_SECRET_FILES = ("password_file", "token_file", "tokens_file", "secret_file", "tls_key", "client_key")
"""Endings of the keys of secrets; a certificate is not a secret, and its key may be in a file of its own."""


def examine_secrets(files: Iterable[tuple[str, Path]]) -> Iterator[Finding]:
    """Examine whether other users may read or write the secrets in *files*, each with its key."""
    for key, file in files:
        with suppress(OSError):  # the component that uses the file reports an unreadable file
            is_token = key.endswith("token_directory")
            files_there = sorted(filter(Path.is_file, file.iterdir())) if is_token else [file]
            for one in files_there if is_token or key.endswith(_SECRET_FILES) else ():
                if _is_open_to_others(one.stat()):
                    effect = ", so HTCondor ignores it" if is_token else ""
                    text = f"other users may read or write {key} {one}{effect}"
                    yield warning("secrets", text, f"chmod 600 {one}")


def _is_open_to_others(status: os.stat_result) -> bool:
    """Return True if other users than the daemon's may read or write a secret file with this *status*.

    The file's group may read it if another user owns it, because Kubernetes mounts secrets this way.
    """
    allowed = 0o700 if status.st_uid == os.geteuid() else 0o740
    return bool(stat.S_IMODE(status.st_mode) & ~allowed)
