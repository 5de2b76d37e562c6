"""ClassAd expressions that test if a slot's site has a job's datasets."""

from collections.abc import Sequence
from typing import Literal

from hydrator.domain.classad import letters
from hydrator.domain.model import Did

Mode = Literal["require", "wait", "prefer"]
MODES: tuple[Mode, ...] = ("require", "wait", "prefer")

_GROUP_SIZE = 16
_MAX_BYTES = 9 * 10**15  # a ClassAd real stores whole numbers up to this one exactly

_AVAILABLE_CLAUSE = (
    'TARGET.DatasetStates["{did}"] =?= "AVAILABLE"'
    ' && ((time() - (TARGET.DatasetAsOf["{did}"] ?: TARGET.DataLocalityAsOf)) < MY.DataLocalityMaxAge)'
    " =?= true"
)

_CREDIT_TEMPLATE = (
    '(((time() - (TARGET.DatasetAsOf["{did}"] ?: TARGET.DataLocalityAsOf)) < MY.DataLocalityMaxAge) =?= true'
    ' ? (TARGET.DatasetStates["{did}"] =?= "AVAILABLE" ? 1.0'
    ' : TARGET.DatasetStates["{did}"] =?= "STAGING" ? {credit} : 0.0) : 0.0)'
)

_BYTES_TEMPLATE = 'MY.RequiredBytes["{did}"] * '

_SPELLING_TEMPLATE = (
    '(TARGET.DatasetLetters is undefined || stringListSubsetMatch("{letters}", TARGET.DatasetLetters)'
    " || stringListSubsetMatch({names}, TARGET.DatasetLetters)) =?= true"
)

_SPELLING_CLAUSE = "(MY.DataLocalitySpelled =!= false)"

_NAMES_EXPRESSION = "MY.RequiredDatasetsCSV"

_SIZE_TEMPLATE = (
    '(isInteger(RequiredBytes["{did}"]) && RequiredBytes["{did}"] >= 0'
    ' ? real(RequiredBytes["{did}"]) : -9.0e99)'
)


def available_expression(dids: Sequence[Did]) -> str:
    """Build the test that all *dids* are on disk at the slot's site; facts that are too old do not count.

    The expression is a chain of ``&&`` in groups of 16, because HTCondor does not evaluate a chain of 400
    clauses.
    """
    each = [_AVAILABLE_CLAUSE.format(did=did) for did in dids]
    groups = (" && ".join(each[start : start + _GROUP_SIZE]) for start in range(0, len(each), _GROUP_SIZE))
    return "(" + ") && (".join(groups) + ")"


def spelling_expression(dids: Sequence[Did], names_expression: str = _NAMES_EXPRESSION) -> str:
    """Build ``DataLocalitySpelled``: true if the slot ad has *dids* in the same letter case.

    The clause is needed because the look-up of a dataset's state ignores letter case. If the slot has no
    DatasetLetters, because the hook has an older version, the clause is true.

    Args:
        dids: the datasets; another clause checks that the slot ad has these datasets in any letter case.
        names_expression: a ClassAd expression whose value is *dids* as one text, with commas between.
    """
    return _SPELLING_TEMPLATE.format(letters=",".join(letters(dids)), names=names_expression)


def here_expression(dids: Sequence[Did], mode: Mode) -> str:
    """Build ``DataLocalityHere``, a job's clause for Requirements: the slot's site has the data.

    In the modes wait and prefer the clause is true for any slot after the time ``DataLocalityAnyAfter``.
    """
    available = f"{available_expression(dids)} && {_SPELLING_CLAUSE}"
    return available if mode == "require" else f"time() >= MY.DataLocalityAnyAfter || ({available})"


def _classad_real(number: float) -> str:
    """Return *number* as a ClassAd real."""
    return repr(float(number))
