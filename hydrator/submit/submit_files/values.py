"""Values of a submit description: escape users' texts and file names, or say why that is impossible.

condor_submit expands ``$(X)`` and ``$NAME(X)`` as macros. A backslash at the end of a line continues the
line. A control character ends the line, or condor_submit drops it. HTCondor expands ``$$(X)`` when it
matches the job; in arguments and environment, ``$$(DOLLARDOLLAR)`` becomes ``$$``. Pure.

Tested on HTCondor 23.9.6 and 25.14.1 (tests/integration/test_submit_language.py).
"""

import re
from collections.abc import Sequence

_PLAIN = re.compile(r"[A-Za-z0-9_./:=@+,{}-]+")


def quote_arguments(words: Sequence[str]) -> str:
    """Return *words* for the ``arguments`` command (new syntax); spaces, quotes and ``$`` are escaped."""

    def one(word: str) -> str:
        escaped = escape_dollars(word.replace('"', '""').replace("'", "''"))
        return escaped if _PLAIN.fullmatch(word) else f"'{escaped}'"

    return '"' + " ".join(one(word) for word in words) + '"'


def escape_dollars(text: str) -> str:
    """Return *text* for arguments or environment with every ``$`` escaped, so that no ``$`` begins a macro.

    Example: ``$$$`` becomes ``$$(DOLLARDOLLAR)$(DOLLAR)``. In the reverse order HTCondor would read the
    ``$(DOLLAR)`` as part of the macro after it.
    """
    return re.sub(
        r"\$+", lambda m: "$$(DOLLARDOLLAR)" * (len(m[0]) // 2) + "$(DOLLAR)" * (len(m[0]) % 2), text
    )


def unfit_reason(text: str) -> str:
    """Return the reason why *text* cannot be a value in a submit description, or an empty text."""
    if not text.strip():
        return "it is blank"
    if odd := re.search(r"[\0-\x08\n-\x1f\x7f]", text):
        return f"it has a control character ({odd[0]!r}) in it"
    if re.search("[\ud800-\udfff]", text):
        return "it is not UTF-8 text"
    if text.endswith("\\"):
        return "it ends with a backslash, which would continue the line"
    return ""


def unfit_value_reason(text: str) -> str:
    """Return the reason why *text* cannot be a value of a command other than arguments, or an empty text.

    Only arguments and environment have an escape for ``$$``.
    """
    return unfit_reason(text) or ("it has $$ in it, which HTCondor would replace" if "$$" in text else "")


def unfit_name_reason(path: str) -> str:
    """Return the reason why *path* cannot be in transfer_input_files, or an empty text."""
    if why := unfit_value_reason(path):
        return why
    if "," in path:
        return "it has a comma in it, which ends a name in a list"
    if path != path.strip():
        return "it begins or ends with a blank"
    return ""
