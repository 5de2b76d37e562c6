"""Options that many commands share."""

from tests.command_tree import COMMANDS


def test_the_option_json_has_one_help_text():
    helps = {
        option.help
        for path, command in COMMANDS.items()
        for option in command.params
        if "--json" in option.opts and not path.endswith("rapthor")
    }
    assert helps == {"Print JSON for programs instead of text for people."}
