"""The man page, from the commands themselves: ``hydrator man``. Plain man(7), for groff and mandoc."""

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .examples import EXAMPLES, EXITS

_FILES = (
    (
        "/etc/classad-hydrator/config.toml",
        "the configuration, where neither --config nor HYDRATOR_CONFIG names one",
    ),
    ("/var/lib/classad-hydrator", "the state (daemon.state_dir)"),
)
_VARIABLES = (
    ("HYDRATOR_CONFIG", "the configuration"),
    ("HYDRATOR_DAEMON__POLL_SECONDS", "and so on: any value of the configuration, section and key"),
    ("NO_COLOR", "no colours, if it is not empty"),
)


def manual(group: Any, version: str, date: str) -> str:  # noqa: ANN401 - Typer keeps its classes to itself
    """The whole page for the commands in *group*; *date* as ``2026-11-21``."""
    parts = [
        f'.TH HYDRATOR 1 "{date}" "classad-hydrator {_text(version)}" "User Commands"',
        f".SH NAME\nhydrator \\- {_text(_sentence(group.help))}",
        ".SH SYNOPSIS\n.B hydrator\n.I COMMAND\n.RI [ OPTIONS ]",
        f".SH DESCRIPTION\n{_text(group.help)}",
        ".SH COMMANDS",
        *(_command(path, command) for path, command in commands(group)),
        ".SH EXIT STATUS",
        *(_item(str(status), meaning) for status, meaning in EXITS),
        ".SH ENVIRONMENT",
        *(_item(name, meaning) for name, meaning in _VARIABLES),
        ".SH FILES",
        *(_item(name, meaning) for name, meaning in _FILES),
        ".SH SEE ALSO\n.BR condor_submit (1),\n.BR condor_status (1)",
    ]
    return "\n".join(parts) + "\n"


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Every command that does something, with its path, such as ``submit wrap``."""
    for name, command in group.commands.items():
        path = f"{before}{name}"
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} ")
        elif not command.hidden:
            yield path, command


def _command(path: str, command: Any) -> str:  # noqa: ANN401
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    words = [path, *(_argument(each) for each in arguments), *(["[OPTIONS]"] if options else [])]
    lines = [f".SS {_text(' '.join(words))}", *_paragraphs(command.help or "")]
    lines += [_item(_argument(each), each.help) for each in arguments if getattr(each, "help", None)]
    lines += [_item(_option(each), each.help or "") for each in options]
    for typed, why in EXAMPLES.get(path, ()):
        lines.append(f".PP\n.nf\n{_text(typed)}\n.fi\n.RS\n{_text(why)}\n.RE")
    return "\n".join(lines)


def _argument(argument: Any) -> str:  # noqa: ANN401
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:  # noqa: ANN401
    value = "" if option.is_flag else f" {str(option.metavar or 'VALUE').strip('<>').upper()}"
    return ", ".join([*option.opts, *option.secondary_opts]) + value


def _paragraphs(text: str) -> Iterable[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield f".PP\n{_text(' '.join(paragraph.split()))}"


def _item(name: str, meaning: str) -> str:
    return f".TP\n.B {_text(name)}\n{_text(meaning)}"


def _sentence(text: str) -> str:
    return inspect.cleandoc(text).partition("\n\n")[0].rstrip(".")


def _text(text: str) -> str:
    """*text* so that roff takes none of it for a request or an escape, in ASCII."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    ascii_only = re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", plain)
    return re.sub(r"(?m)^\.", r"\\&.", ascii_only)
