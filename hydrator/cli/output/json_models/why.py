"""Model of the output of ``hydrator why --json``; its parts are classes of ``hydrator.diagnostics.why``."""

from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing.TypedDict

from hydrator.diagnostics.units import BySchedd
from hydrator.diagnostics.why.explanation import JobExplanation
from hydrator.diagnostics.why.summary import JobSummary


class WhyJson(TypedDict):
    """The answers of ``hydrator why``."""

    answers: list[JobExplanation]
    """one for each kind of jobs"""
    more: JobSummary
    """summary of the other jobs of a large cluster"""
    unreachable_schedds: BySchedd[str]
    """schedds that did not answer, with the reason"""
