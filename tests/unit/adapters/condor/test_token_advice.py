"""Advice where HTCondor has no valid token: the most probable of several reasons."""

import os

import pytest

from adapters.condor.bindings.token_advice import (
    TOKEN_ADVICE,
    describe_token_limit,
    is_level_missing,
    token_advice,
    token_limits,
)
from tests.factories import jwt


def test_unreadable_token_folder_is_named_with_the_uid_of_the_process(tmp_path):
    advice = token_advice(tmp_path / "tokens.d", os.geteuid())
    assert f"{tmp_path}/tokens.d: No such file or directory (this process has uid {os.geteuid()})" in advice
    assert "LoadCredential=" in advice


def test_empty_token_folder_is_named(tmp_path):
    assert token_advice(tmp_path, os.geteuid()) == f"{TOKEN_ADVICE}: {tmp_path} contains no token"


def test_token_of_another_user_is_named_with_both_uids(tmp_path):
    (tmp_path / "hydrator").touch()
    owner = os.geteuid()
    advice = token_advice(tmp_path, owner + 1)
    assert f"{tmp_path}/hydrator belongs to uid {owner}" in advice
    assert f"only tokens of this process's user, uid {owner + 1}" in advice


def test_rejected_token_of_this_user_belongs_to_another_pool(tmp_path):
    (tmp_path / "hydrator").touch()
    assert token_advice(tmp_path, os.geteuid()) == TOKEN_ADVICE


def test_missing_token_folder_setting_is_named():
    assert "htcondor.token_directory" in token_advice(None, 0)


def token(**claims) -> str:
    """Return a JWT as condor_token_create makes them, with an invalid signature."""
    return jwt({"iss": "pool", **claims}) + "\n"


@pytest.mark.parametrize(
    ("tokens", "limited"),
    [
        ([token(scope="condor:/READ")], {"READ"}),
        ([token(scope="condor:/READ condor:/DAEMON")], {"READ", "DAEMON"}),
        ([token(scope="condor:/READ"), token(scope="condor:/DAEMON")], {"READ", "DAEMON"}),
        ([token(scope="condor:/READ"), token()], set()),
        (["no token\n"], set()),
        ([token(scope=["odd"])], set()),
        ([], set()),
    ],
)
def test_token_limits_are_the_levels_of_all_tokens(tmp_path, tokens, limited):
    for number, text in enumerate(tokens):
        (tmp_path / str(number)).write_text(text)
    assert token_limits([tmp_path, tmp_path / "not there"]) == limited


@pytest.mark.parametrize(
    ("limited", "level", "is_lacking"),
    [
        ({"READ"}, "DAEMON", True),
        ({"READ"}, "READ", False),
        ({"DAEMON"}, "READ", False),
        ({"DAEMON"}, "WRITE", False),
        ({"READ", "DAEMON"}, "NEGOTIATOR", True),
        (set(), "DAEMON", False),
    ],
)
def test_limit_lacks_a_level_that_none_of_its_levels_implies(limited, level, is_lacking):
    assert is_level_missing(frozenset(limited), level) is is_lacking


def test_advice_names_every_level_that_the_new_token_needs():
    advice = describe_token_limit(frozenset({"READ"}), "DAEMON")
    assert advice.startswith("its token allows only READ: ")
    assert "-authz DAEMON -authz READ" in advice
