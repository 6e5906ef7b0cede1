"""What is refused of an evaluation of a build before anything is built."""

from pathlib import Path
from typing import Any

import pytest

from mlgokit.commands.evaluate import Evaluate, run
from mlgokit.commands.options import OptionChanges
from mlgokit.errors import UsageError

DATABASE = Path("compile_commands.json")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"build": ("make",), "compile_commands": DATABASE},
            "evaluate: expected one of --build, --compile-commands and --corpus, found --build and --compile",
        ),
        (
            {"build": ("make",), "corpus": Path("corpus")},
            "evaluate: expected one of --build, --compile-commands and --corpus, found --build and --corpus; name one",
        ),
        (
            {"compile_commands": DATABASE, "changes": OptionChanges(add_options=("-O3",))},
            "--add-options: needs --corpus; add that, or remove --add-options",
        ),
        (
            {"build": ("make",), "changes": OptionChanges(delete_options=("-g",))},
            "--delete-options: needs --corpus; add that",
        ),
        ({"folder": Path("project")}, "--folder: needs --build; add that, or remove --folder"),
        (
            {"link_command": ("cc {objects}",)},
            "--link-command: needs --compile-commands; add that, or remove --link-command",
        ),
        ({"images": ("tool",)}, "--images: needs --build; add that, or remove --images"),
        ({"plugin_in": "link"}, "--plugin-in: needs --build or --link-command; add that"),
        ({"against_link_options": "-s"}, "--link-options: needs --build or --link-command; add that"),
        (
            {"compile_commands": DATABASE, "link_folder": (Path(),)},
            "--link-folder: needs --link-command; ",
        ),
        (
            {
                "compile_commands": DATABASE,
                "link_command": ("cc {objects} -o a", "cc {objects} -o b", "cc {objects} -o c"),
                "link_folder": (Path(), Path()),
            },
            "--link-folder: expected one folder, or one for each of 3 --link-command, found 2; correct it",
        ),
        (
            {"build": ("make",), "projects": ("a",)},
            "--projects: only for a corpus; a build is one project",
        ),
        ({"build": ("make && true",)}, "--build: expected one command without a shell's operators, found '&&'"),
        ({"build": ("no-such-program",)}, "--build: expected a program in no-such-program, found no no-such"),
        ({"build": ("make",), "folder": Path("nowhere")}, "--folder nowhere: expected a folder with sources to build"),
        ({"build": ("make 'x",)}, "--build: "),
        (
            {"build": ("make",), "images": ("/elsewhere/tool",)},
            "--images /elsewhere/tool: expected a pattern of paths below /.*, found: Non-relative patterns",
        ),
        ({"build": ("make",), "images": ("**tool",)}, r"--images \*\*tool: expected a pattern of paths below "),
        ({"confidence": 1.0}, "--confidence: expected a number between 0 and 1, found 1; 0.95 is usual"),
        (
            {"plain": False},
            "evaluate: expected a candidate \\(a policy, --plugin, --options or --plain\\), found none; ",
        ),
        ({"policy": (":never",)}, "evaluate: expected a candidate .*, found one beside --plain; see"),
    ],
)
def test_calls_that_make_no_sense(given: dict[str, Any], message: str):
    facts: dict[str, Any] = {"plain": True, **given}
    with pytest.raises(UsageError, match=f"^{message}"):
        run(Evaluate(**facts))
