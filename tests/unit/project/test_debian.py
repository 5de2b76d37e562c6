"""Sources of a private Debian tree: the machine's apt sources, in both formats."""

from pathlib import Path

import pytest

from testbed import debian

BOOKWORM = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_CODENAME=bookworm\nID=debian\n'


def etc(folder: Path, os_release: str = BOOKWORM, **sources: str) -> Path:
    """An /etc with these files in apt/; ``_`` in a name stands for ``.``."""
    (folder / "apt" / "sources.list.d").mkdir(parents=True)
    (folder / "os-release").write_text(os_release, "utf-8")
    for name, text in sources.items():
        inner = "" if name == "sources_list" else "sources.list.d"
        (folder / "apt" / inner / name.replace("_", ".")).write_text(text, "utf-8")
    return folder


def test_reads_the_mirror_from_a_one_line_source(tmp_path: Path):
    text = (
        "# deb http://commented.example/debian bookworm main\n"
        "deb-src http://source.example/debian bookworm main\n"
        "deb http://security.example/debian-security bookworm-security main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib\n"
    )
    assert debian.mirror(etc(tmp_path, sources_list=text)) == "http://mirror.example/debian"


def test_reads_the_mirror_from_a_deb822_source(tmp_path: Path):
    text = (
        "Types: deb\nURIs: http://off.example/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n\n"
        "Types: deb deb-src\n# a comment\nURIs:\n https://mirror.example/debian\n"
        "Suites: bookworm bookworm-updates\nComponents: main\n"
    )
    assert debian.mirror(etc(tmp_path, debian_sources=text)) == "https://mirror.example/debian"


def test_takes_no_third_party_archive_for_the_mirror(tmp_path: Path):
    there = etc(
        tmp_path,
        node_list="deb https://node.example/node nodistro main\n",
        sdk_sources="Types: deb\nURIs: https://sdk.example/apt\nSuites: stable\nComponents: sdk\n",
    )
    assert debian.mirror(there) is None


@pytest.mark.parametrize("os_release", ["ID=ubuntu\nVERSION_CODENAME=noble\n", ""])
def test_another_distribution_has_no_debian_mirror(tmp_path: Path, os_release: str):
    there = etc(tmp_path, os_release, sources_list="deb http://other.example/ubuntu noble main\n")
    assert debian.mirror(there) is None


def test_reads_the_version_from_what_condor_version_prints():
    said = (
        "$CondorVersion: 25.14.1 2026-10-16 PackageID: 25.14.1+dfsg-1 $\n$CondorPlatform: X86_64-Debian_ $\n"
    )
    assert debian.parse_version(said) == "25.14.1"


def test_says_what_condor_version_printed_when_that_is_no_version():
    with pytest.raises(debian.Unavailable, match="Illegal instruction"):
        debian.parse_version("Illegal instruction")
