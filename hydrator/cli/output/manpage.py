"""Man page, built from the commands: ``hydrator man``. Plain man(7), for groff and mandoc."""

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .examples import EXAMPLES, EXIT_STATUSES

_FILES = (
    (
        "/etc/classad-hydrator/config.toml",
        "the configuration, if neither --config nor HYDRATOR_CONFIG names another file",
    ),
    ("/var/lib/classad-hydrator", "the state (daemon.state_dir)"),
)
_VARIABLES = (
    ("HYDRATOR_CONFIG", "the configuration"),
    (
        "HYDRATOR_DAEMON__POLL_SECONDS",
        "poll_seconds of [daemon]; every other setting has such a variable, too",
    ),
    ("NO_COLOR", "switches colours off, if the value is not empty"),
)


def build_manpage(group: Any, version: str, date: str) -> str:  # noqa: ANN401 - Typer exports no type
    """Build the page for the commands in *group*; *date* as ``2026-11-21``."""
    parts = [
        f'.TH HYDRATOR 1 "{date}" "classad-hydrator {_escape_roff(version)}" "User Commands"',
        f".SH NAME\nhydrator \\- {_escape_roff(_first_sentence(group.help))}",
        ".SH SYNOPSIS\n.B hydrator\n.RI [ GLOBAL\\~OPTIONS ]\n.I COMMAND\n.RI [ OPTIONS ]",
        f".SH DESCRIPTION\n{_escape_roff(group.help)}",
        ".SH GLOBAL OPTIONS",
        *(_format_item(_format_option(each), each.help or "") for each in group.params if not each.hidden),
        ".SH COMMANDS",
        *(_format_command(path, command) for path, command in walk_commands(group)),
        ".SH EXIT STATUS",
        *(_format_item(str(status), meaning) for status, meaning in EXIT_STATUSES),
        ".SH ENVIRONMENT",
        *(_format_item(name, meaning) for name, meaning in _VARIABLES),
        ".SH FILES",
        *(_format_item(name, meaning) for name, meaning in _FILES),
        ".SH SEE ALSO\n.BR condor_submit (1),\n.BR condor_status (1)",
    ]
    return "\n".join(parts) + "\n"


def walk_commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Yield every visible command with its path, such as ``submit wrap``."""
    for name, command in group.commands.items():
        path = f"{prefix}{name}"
        if hasattr(command, "commands"):
            yield from walk_commands(command, f"{path} ")
        elif not command.hidden:
            yield path, command


def _format_command(path: str, command: Any) -> str:  # noqa: ANN401
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    words = [path, *(_format_argument(each) for each in arguments), *(["[OPTIONS]"] if options else [])]
    lines = [f".SS {_escape_roff(' '.join(words))}", *_format_paragraphs(command.help or "")]
    lines += [
        _format_item(_format_argument(each), each.help) for each in arguments if getattr(each, "help", None)
    ]
    lines += [_format_item(_format_option(each), each.help or "") for each in options]
    for typed, why in EXAMPLES.get(path, ()):
        lines.append(f".PP\n.nf\n{_escape_roff(typed)}\n.fi\n.RS\n{_escape_roff(why)}\n.RE")
    return "\n".join(lines)


def _format_argument(argument: Any) -> str:  # noqa: ANN401
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required else f"[{name}]"


def _format_option(option: Any) -> str:  # noqa: ANN401
    value = "" if option.is_flag else f" {str(option.metavar or 'VALUE').strip('<>').upper()}"
    return ", ".join([*option.opts, *option.secondary_opts]) + value


def _format_paragraphs(text: str) -> Iterable[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield f".PP\n{_escape_roff(' '.join(paragraph.split()))}"


def _format_item(name: str, meaning: str) -> str:
    return f".TP\n.B {_escape_roff(name)}\n{_escape_roff(meaning)}"


def _first_sentence(text: str) -> str:
    return inspect.cleandoc(text).partition("\n\n")[0].rstrip(".")


def _escape_roff(text: str) -> str:
    """Return *text* in ASCII, with escapes so that roff prints each character as it is."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    ascii_only = re.sub(r"[^\x00-\x7f]", lambda match: f"\\[u{ord(match[0]):04X}]", plain)
    return re.sub(r"(?m)^\.", r"\\&.", ascii_only)
