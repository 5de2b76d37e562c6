"""Pool configuration: the texts of ``hydrator pool-config``, and their expressions."""

import re
import struct
import time

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ClassAd, ExprTree

from hydrator.config import Settings
from hydrator.domain.ads.expressions import SIGNIFICANT_ATTRIBUTES
from hydrator.domain.model import MAX_DID_CHARS, Did
from hydrator.submit.pool_config import (
    START_CLAUSE,
    negotiator_config,
    schedd_config,
    startd_config,
)

A, B = Did("ska:a"), Did("ska:b")
DEFAULT_PRE_JOB_RANK = (
    "(10000000 * My.Rank) + (1000000 * (RemoteOwner =?= UNDEFINED)) - (100000 * Cpus) - Memory"
)
NEGOTIATOR = dict(re.findall(r"^(\w+) = ?(.*)$", negotiator_config(), re.MULTILINE))


def expanded(weight: str = "1000000000", previous: str = DEFAULT_PRE_JOB_RANK) -> str:
    """Return NEGOTIATOR_PRE_JOB_RANK as condor_config_val prints it."""
    known = {**NEGOTIATOR, "DATALOCALITY_OTHERS_WEIGHT": weight}
    text = known.pop("NEGOTIATOR_PRE_JOB_RANK")
    known["NEGOTIATOR_PRE_JOB_RANK"] = previous
    while "$(" in text:
        text = re.sub(r"\$\((\w+)(?::[\d.]+)?\)", lambda macro: known[macro[1]], text)
    return text


def value(job_ad: ClassAd, slot_ad: ClassAd, name="X"):
    """Return the job's attribute as the negotiator evaluates it against the slot."""
    return job_ad.lookup(name).eval(job_ad, slot_ad)


# --- the negotiator's term


def pre_job_rank(job_ad: ClassAd, slot_ad: ClassAd, weight="1000000000") -> float:
    """Evaluate the negotiator's term as HTCondor would, with the default rank."""
    ad = ClassAd(str(slot_ad))
    ad["X"] = ExprTree(expanded(weight))
    return value(ad, job_ad)


def sized(cpus: int, **more) -> ClassAd:
    return ClassAd({"Cpus": cpus, "Memory": cpus * 1024, "Rank": 0.0, **more})


def test_one_second_of_reading_counts_more_than_the_size_of_a_slot():
    small, large = sized(1), sized(512)
    assert pre_job_rank(ClassAd("[DataLocalityRank = -1.0]"), small) < pre_job_rank(
        ClassAd("[DataLocalityRank = 0.0]"), large
    )


@pytest.mark.parametrize("seconds", [0.0, -64.5, -900000.0, -1e6])
def test_former_terms_choose_among_slots_with_the_same_seconds(seconds):
    ad = ClassAd({"DataLocalityRank": seconds})
    assert pre_job_rank(ad, sized(1)) > pre_job_rank(ad, sized(2))
    gpu = ClassAd({"DataLocalityRank": seconds, "GPUPreference": 1.0})
    assert pre_job_rank(gpu, sized(512)) > pre_job_rank(ad, sized(1))
    # the negotiator stores a rank with 24 bits
    single = [struct.unpack("f", struct.pack("f", pre_job_rank(ad, sized(cpus))))[0] for cpus in (2, 4, 8)]
    assert single[0] > single[1] > single[2]


def test_jobs_without_datasets_avoid_the_slots_of_a_site_where_jobs_wait_for_its_data():
    plain = ClassAd('[Owner = "alice"]')
    later = int(time.time()) + 3600
    waited_for = sized(1, DataLocalityBacklog=1, DataLocalityOpenUntil=later)
    assert pre_job_rank(plain, waited_for) < pre_job_rank(plain, sized(128))
    assert pre_job_rank(plain, waited_for, weight="0") > pre_job_rank(plain, sized(128))
    with_data = ClassAd("[DataLocalityRank = 0.0]")
    assert pre_job_rank(with_data, waited_for) == pre_job_rank(with_data, sized(1))
    for end in (int(time.time()) - 1, None):
        old = sized(1, DataLocalityBacklog=1, DataLocalityOpenUntil=end)
        assert pre_job_rank(plain, old) == pre_job_rank(plain, sized(1)), "the daemon has ended"


@pytest.mark.parametrize("queue", ["undefined", "error", '"60"', "{60}", "-5", "0"])
def test_negotiator_term_is_0_for_jobs_without_datasets_at_any_other_slot(queue):
    ad = sized(1)
    ad["DataLocalityBacklog"] = ExprTree(queue)
    assert pre_job_rank(ClassAd('[Owner = "alice"]'), ad) == pre_job_rank(ClassAd('[Owner = "a"]'), sized(1))


@pytest.mark.parametrize(
    ("said", "starts"), [("true", True), ("false", False), ("undefined", True), ("error", True)]
)
def test_start_clause_rejects_only_jobs_with_locality_false(said, starts):
    ad = ClassAd()
    ad["X"] = ExprTree(f"(true) && {START_CLAUSE}")
    assert value(ad, ClassAd(f"[DataLocalityHere = {said}]")) is starts


def test_start_clause_is_true_without_a_job():
    ad = ClassAd()
    ad["X"] = ExprTree(f"(true) && {START_CLAUSE}")
    assert ad.eval("X") is True


# --- the texts


EVERYTHING = Settings(
    daemon={"default_scope": "x"}, jobs={"glideinwms": True}, publish={"never": ("embargo:*", "a?")}
)


def test_texts_of_all_roles_on_one_host_share_no_macro_and_no_pattern_is_recursive():
    texts = (schedd_config(EVERYTHING), startd_config(), negotiator_config())
    assert not any(re.search(r"\(\?(?:R|\d|&|\(DEFINE)", text) for text in texts)
    names = [set(re.findall(r"^(DATALOCALITY_\w+) =", text, re.MULTILINE)) for text in texts]
    assert not names[0] & names[2]


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (schedd_config(EVERYTHING, job_rank=True), 90),
        (schedd_config(Settings(publish={"never": [f"scope{n}:project.*" for n in range(50)]})), 100),
        (negotiator_config(), 5),
        (startd_config(), 3),
    ],
)
def test_text_is_short_enough_for_an_operator_to_review(text, most):
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(lines) <= most
    assert max(map(len, lines)) <= 200


def test_text_has_the_operators_choices():
    settings = Settings(
        daemon={"default_scope": "lofar", "max_age_hours": 1.25},
        jobs={"default_mode": "require", "wait_seconds": 7200},
    )
    text = schedd_config(settings)
    for part in (
        'DataLocality ?: "require"',
        "? 7200 : 600)\n",
        "DataLocalityMaxAge ?: 3600\n",
        '"\\\\1lofar:\\\\2"',
        "? 3600 : max(",
    ):
        assert part in text, part


@pytest.mark.parametrize("rank_only", [False, True])
def test_every_text_extends_the_pools_current_values(rank_only):
    text = schedd_config(Settings(), rank_only=rank_only)
    for name in (
        "JOB_TRANSFORM_NAMES",
        "SUBMIT_REQUIREMENT_NAMES",
        "IMMUTABLE_JOB_ATTRS",
        "PROTECTED_JOB_ATTRS",
    ):
        assert re.search(rf"^{name} = \$\({name}\) ", text, re.MULTILINE)
    [rank] = re.findall(
        r"^NEGOTIATOR_PRE_JOB_RANK = (.*)", negotiator_config(rank_only=rank_only), re.MULTILINE
    )
    assert rank.endswith(" + ($(NEGOTIATOR_PRE_JOB_RANK:0.0))"), "also if it is empty"


def test_schedd_sends_the_attributes_that_slots_look_at():
    """Else a job with a key matches no slot, and jobs with other keys are one autocluster."""
    [line] = re.findall(r"^ADD_SIGNIFICANT_ATTRIBUTES = (.*)", schedd_config(Settings()), re.MULTILINE)
    assert line.split() == ["$(ADD_SIGNIFICANT_ATTRIBUTES)", *SIGNIFICANT_ATTRIBUTES]


def test_rank_only_changes_no_start():
    assert not any(line.startswith("START") for line in startd_config(rank_only=True).splitlines())


def test_schedd_and_model_accept_the_same_longest_did():
    assert f"{{1,{MAX_DID_CHARS}}}" in schedd_config(Settings())
