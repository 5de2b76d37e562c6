"""Text of an explanation of an idle job."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hydrator.diagnostics.why.explanation import JobExplanation, MismatchCause, SiteMatch
from hydrator.diagnostics.why.query import WhyResult

COLUMNS = ("site", "slots", "match", "why not")


@dataclass(frozen=True, slots=True)
class RenderedAnswer:
    """An answer for people: sentences, a row of ``COLUMNS`` for every reason, and the cheapest remedy."""

    lines: tuple[str, ...]
    rows: tuple[tuple[str, str, str, str], ...] = ()
    remedy: str = ""


def render_answer(answer: JobExplanation, hide: Callable[[str], str] = str) -> RenderedAnswer:
    """Return *answer* as text; *hide* redacts every text."""
    job = answer.job
    head = f"job {job.name}: " if job.name else ""
    like_it_text = f" (and {job.job_count - 1} like it in the cluster)" if job.job_count > 1 else ""
    lines = [f"{head}{answer.verdict}{like_it_text}"]
    lines += [answer.wait] if answer.wait else []
    lines += answer.staging
    lines += [*answer.notes, *([answer.funnel] if answer.funnel and answer.sites else [])]
    return RenderedAnswer(
        tuple(map(hide, lines)),
        tuple((hide(site), slots, match, hide(why)) for site, slots, match, why in _table_rows(answer.sites)),
        hide(f"soonest: {answer.remedy}") if answer.remedy else "",
    )


def _table_rows(sites: Sequence[SiteMatch]) -> Iterable[tuple[str, str, str, str]]:
    for at in sites:
        head: tuple[str, str, str] = (at.display_name, str(at.slots), str(at.matching_slots))
        for reason in at.reasons:
            slot_share = f" ({reason.slots} of {at.slots} slots)" if 0 < reason.slots < at.slots else ""
            yield (
                *head,
                f"{'data: ' if reason.cause is MismatchCause.DATA else ''}{reason.text}{slot_share}",
            )
            head = ("", "", "")
        if at.held_change:
            advice = "see hydrator status and docs/operators/troubleshooting.md"
            yield (*head, f"data: the daemon holds back a change of this site: {at.held_change}; {advice}")
        elif not at.reasons:
            yield (*head, "")


def render_result(result: WhyResult, hide: Callable[[str], str] = str) -> list[RenderedAnswer]:
    """Return all answers as text, and the summary of the other jobs."""
    answers = [render_answer(answer, hide) for answer in result.answers]
    return [*answers, *([RenderedAnswer((hide(result.others),))] if result.others else [])]
