"""What is read from the source of a configuration is what tyro makes of the class, and what stands in it."""

import contextlib
import io
import re
from dataclasses import fields

import pytest
from tests.test_cli import comments, nested, squeezed

from mlgokit.cli import main
from mlgokit.commands.help import options_of
from mlgokit.commands.table import COMMANDS


def whole_help(name: str) -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*name.split(), "--help-all"])
    out.seek(0)
    return out.read()


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_those_that_tyro_makes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")  # One column.
    monkeypatch.setenv("NO_COLOR", "1")
    shown = whole_help(name)
    lines = re.sub(r"[│╭╮╰╯─]", " ", shown).splitlines()
    entry = re.compile(r"  (?:-\w [^ ]+, )?(--[\w.-]+) ?(\[\S+ .*?\]\]|\S+)?(?:  |$)")
    typed = {match[1]: match[2] or "" for line in lines if (match := entry.match(f"{line.rstrip()}  "))}
    text = squeezed(shown)
    options = options_of(COMMANDS[name])

    assert {one.names[-1] for one in options if not one.is_positional} == typed.keys() - {"--help", "--json"}
    configuration = COMMANDS[name].configuration
    for said in (configuration.__doc__ or "", "Print the result as JSON on standard output."):
        assert squeezed(said) in text
    for config in nested(configuration):
        assert len([*comments(config)]) == len(fields(config))
        assert [said for said in comments(config) if squeezed(said) not in text] == []
    for one in options:
        assert one.help
        assert squeezed(one.help) in text
        if one.is_positional:
            continue
        value = typed[one.names[-1]].replace("{None}|", "").replace("{None,", "{")
        if one.value != "NAME":
            assert (re.sub(r"^\[(\S+) .*", r"\1", value) if one.takes_many else value) == one.value
        remark = re.search(rf"{re.escape(squeezed(one.help))}\((required|repeatable|default:(.*?))\)", text)
        assert remark is not None, one
        assert one.is_required == (remark[1] == "required")
        assert one.is_repeatable == (remark[1] == "repeatable")
        if one.group and one.default:
            assert remark[2] == squeezed(one.default)
    assert all(one.names[0].startswith("-") and f" {one.names[0]} " in shown for one in options if len(one.names) > 1)
