"""What a schedd makes of a job by the printed text: its transform and submit requirements, on classad2.

The engine of HTCondor is imitated as far as the text uses it; tests/integration/test_transform.py compares it
with ``condor_transform_ads`` of both releases.
"""

import re
from collections.abc import Mapping

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
from classad2 import ClassAd, ExprTree

SYSTEM = {
    "JobUniverse": "5",
    "ClusterId": "12",
    "ProcId": "0",
    "Cmd": '"/bin/true"',
    "GlobalJobId": '"schedd@Host.example#12.0#1764000000"',
    "Requirements": "TARGET.Cpus > 1 || false",
}
"""Attributes that condor_submit and the schedd give to each job."""


def job_ad(attributes: Mapping[str, str]) -> ClassAd:
    """Return a job with *attributes* (expressions as text), as it comes to the schedd."""
    ad = ClassAd()
    for name, text in {**SYSTEM, **attributes}.items():
        ad[name] = ExprTree(text)
    return ad


class ScheddText:
    """The printed configuration of a schedd."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.macros = dict(re.findall(r"^(\w+) = ?(.*)$", text, re.MULTILINE))
        self.requirements = self.macros["SUBMIT_REQUIREMENT_NAMES"].split()[1:]
        self.schedd_ad = ClassAd({"MyType": "Scheduler"})
        [self.transform] = re.findall(r"^JOB_TRANSFORM_\w+ @=end\n(.*?)^@end", text, re.DOTALL | re.MULTILINE)

    def expand(self, text: str, macros: Mapping[str, str]) -> str:
        """Expand the macros in *text*, as HTCondor's configuration does."""
        known = {**self.macros, **macros}
        while (longer := re.sub(r"\$\(([\w.]+)\)", lambda macro: known[macro[1]], text)) != text:
            text = longer
        return text

    def transformed(self, attributes: Mapping[str, str], cluster: Mapping[str, str] | None = None) -> ClassAd:
        """Return the job with *attributes* after the transform.

        What the transform deletes of it is undefined if the ad of its *cluster* has the attribute too.
        """
        cluster = cluster or {}
        ad, macros, branches = job_ad({**cluster, **attributes}), {}, []
        for line in self.transform.splitlines():
            word, _, rest = line.strip().partition(" ")
            if word in {"", "#"} or word.startswith("#"):
                continue
            macros["MY.Requirements"], macros["MY.Rank"] = (
                str(ad.lookup(name)) if name in ad else "" for name in ("Requirements", "Rank")
            )
            if word == "if" and any(branch != "taken" for branch in branches):
                branches.append("done")
            elif word in {"if", "elif", "else", "endif"}:
                is_open = branches[:-1] == ["taken"] * len(branches[:-1])
                self._branch(branches, word, self.expand(rest, macros) if is_open else "")
            elif all(branch == "taken" for branch in branches):
                self._run(ad, macros, word, rest)
                if word == "DELETE" and rest in cluster:
                    ad[rest] = ExprTree("undefined")
        return ad

    @staticmethod
    def _branch(branches: list[str], word: str, condition: str) -> None:
        if word == "if":
            branches.append("taken" if condition == "true" else "open")
        elif word == "endif":
            branches.pop()
        else:
            is_taken = branches[-1] == "open" and (word == "else" or condition == "true")
            branches[-1] = "taken" if is_taken else "open" if branches[-1] == "open" else "done"

    def _run(self, ad: ClassAd, macros: dict[str, str], word: str, rest: str) -> None:
        name, _, text = rest.partition(" ")
        tree = ExprTree(self.expand(text.strip(), macros)) if text else None
        if word == "EVALMACRO":
            value = tree.eval(ad, ad)
            macros[name] = str(value).lower() if isinstance(value, bool) else str(value)
        elif word == "EVALSET":
            ad[name] = tree.eval(ad, ad)
        elif word == "SET" or (word == "DEFAULT" and name not in ad):
            ad[name] = tree
        elif word == "DELETE" and name in ad:
            del ad[name]

    def refused_by(self, ad: ClassAd) -> str | None:
        """Return the first submit requirement that the transformed *ad* fails."""
        for name in self.requirements:
            if self._evaluate(f"SUBMIT_REQUIREMENT_{name}", ad) is not True:
                return name
        return None

    def reason(self, ad: ClassAd) -> str:
        """Return what the user is told if *ad* is refused."""
        return str(self._evaluate(f"SUBMIT_REQUIREMENT_{self.refused_by(ad)}_REASON", ad))

    def _evaluate(self, macro: str, ad: ClassAd) -> object:
        return ExprTree(self.expand(self.macros[macro], {})).eval(self.schedd_ad, ad)
