"""What is said where HTCondor found no token: which of the plausible reasons it is."""

import os

from adapters.condor.tokens import GIVE, advice


def test_a_folder_that_is_not_there_or_not_ours_to_read_is_named_with_who_we_are(tmp_path):
    said = advice(tmp_path / "tokens.d", os.geteuid())
    assert f"{tmp_path}/tokens.d: No such file or directory (we are uid {os.geteuid()})" in said
    assert "LoadCredential=" in said


def test_an_empty_folder_is_told_as_such(tmp_path):
    assert advice(tmp_path, os.geteuid()) == f"{GIVE}: {tmp_path} holds none"


def test_a_token_of_somebody_else_is_told_with_both_owners(tmp_path):
    (tmp_path / "hydrator").touch()
    owner = os.geteuid()
    said = advice(tmp_path, owner + 1)
    assert f"{tmp_path}/hydrator belongs to uid {owner}" in said
    assert f"tokens of uid {owner + 1} alone" in said


def test_a_token_of_ours_that_is_refused_is_no_token_of_that_pool(tmp_path):
    (tmp_path / "hydrator").touch()
    assert advice(tmp_path, os.geteuid()) == GIVE


def test_without_a_folder_its_key_is_named():
    assert "htcondor.token_directory" in advice(None, 0)
