"""Ends of tokens and certificates: parsed without verification, and without errors."""

import base64
from datetime import timedelta

import pytest
import trustme

from hydrator.diagnostics.credential_expiry import (
    Credential,
    parse_certificates,
    parse_idtokens,
    parse_token,
)
from hydrator.domain.model import to_unix
from tests.factories import HOUR, MINUTE, NOON, jwt

DAY = timedelta(days=1)


def lasting(since, until, **more) -> str:
    return jwt({"iat": to_unix(since), "exp": to_unix(until), **more})


def test_token_has_its_start_and_end():
    one = parse_token("catalogue rucio: token_file", "token-files", lasting(NOON, NOON + HOUR) + "\n")
    assert (one.issued_at, one.expires_at, one.lifetime) == (
        NOON,
        NOON + HOUR,
        HOUR,
    )


ENDLESS = ["", "root-root-webui-0123abcd", "a.b.c", "..", jwt([1]), jwt({}), jwt({"exp": "soon"})]
ENDLESS += [jwt({"exp": True}), jwt({"exp": 1e300}), jwt({"exp": -5}), "a.WWWWWWWWWW.c", "é.é.é"]
ENDLESS += [f"a.{'W1tb' * 20_000}.c"]  # JSON too deep to read


@pytest.mark.parametrize("text", ENDLESS, ids=range(len(ENDLESS)))
def test_token_without_an_end_is_not_listed(text):
    assert parse_token("x", "y", text) is None


def test_of_several_idtokens_of_a_pool_the_one_that_lasts_longest_counts():
    texts = [
        "# ours\n" + lasting(NOON, NOON + HOUR, iss="pool.a"),
        lasting(NOON, NOON + DAY, iss="pool.a") + "\n" + lasting(NOON, NOON + HOUR, iss="pool.b"),
        jwt({"iss": "pool.c", "iat": to_unix(NOON)}) + "\n" + lasting(NOON, NOON + HOUR, iss="pool.c"),
        lasting(NOON, NOON + HOUR),
        "rubbish",
    ]
    found = {one.name: one.expires_at - NOON for one in parse_idtokens(texts)}
    assert found == {"IDTOKEN of pool.a": DAY, "IDTOKEN of pool.b": HOUR}, "one of pool.c never ends"


def test_certificate_dates_equal_those_of_the_library_cryptography():
    authority = trustme.CA()
    issued = authority.issue_cert("hydrator.test", not_after=NOON + 90 * DAY)
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems).decode()
    from cryptography import x509

    ours = parse_certificates("publish.http.tls_certificate", "tls", chain)
    theirs = [x509.load_pem_x509_certificate(blob.bytes()) for blob in issued.cert_chain_pems]
    soonest = min(theirs, key=lambda one: one.not_valid_after_utc)
    assert (ours.issued_at, ours.expires_at) == (soonest.not_valid_before_utc, soonest.not_valid_after_utc)
    root = authority.cert_pem.bytes().decode()
    assert parse_certificates("ca", "tls", root).expires_at.year >= 2038, "GeneralizedTime or UTCTime"


@pytest.mark.parametrize("length", [0, 1, 2, 5, 20, 60, 100])
def test_truncated_certificate_is_not_listed(length):
    pem = trustme.CA().cert_pem.bytes().decode()
    der = base64.b64decode("".join(pem.splitlines()[1:-1]))
    spoilt = base64.b64encode(der[:length]).decode()
    text = f"-----BEGIN CERTIFICATE-----\n{spoilt}\n-----END CERTIFICATE-----\n"
    assert parse_certificates("x", "tls", text) is None
    assert parse_certificates("x", "tls", pem[: len(pem) // 2]) is None


def test_renewal_is_due_at_a_tenth_of_the_lifetime_and_within_30_days():
    def soon(life, left):
        until = NOON + left
        return Credential("x", "y", until, until - life if life else None).is_renewal_due(NOON)

    assert [soon(HOUR, left * MINUTE) for left in (7, 6, -1)] == [False, True, True]
    assert [soon(3650 * DAY, left * DAY) for left in (31, 30)] == [False, True]
    assert [soon(None, left * DAY) for left in (8, 7)] == [False, True]
