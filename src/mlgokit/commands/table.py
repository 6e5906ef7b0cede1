"""The table of the commands. Nothing that a command imports is imported before it is asked for."""

import enum
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rich.console import Console

    from mlgokit.pages.model import Page


class Group(enum.Enum):
    """What a command is for: the titles of ``mlgokit --help``."""

    DAILY = "one project made smaller"
    LEARNING = "policies learned from corpora"
    OTHER_TOOLS = "results in other forms"
    MACHINE = "this machine and this shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command. Its module has ``run``, and maybe ``page`` or ``render``, and ``exit_code``.

    ``run`` takes the configuration and ``report``; what it returns, :func:`json_values` has as JSON. ``page`` makes a
    page of that, or ``render`` prints it; without them, JSON values are printed. ``exit_code`` is of a configuration
    and what ``run`` returned; without it, 0.

    Attributes:
        module: file below ``commands/``, with dots; that of the command's name if not given.
        kind: the name in it of the configuration, a dataclass whose docstrings are the help; by default the command's
            without ``corpus``.
        group: where ``mlgokit --help`` has it.
        summary: what it does, in a line of that.
        folder: the option that names the folder which grows with a run; without it, there is none to speak of.
        plugin: the option that names the plugin that it writes.
        files: options that name other files that it writes.
        folders: options that name further folders that it writes into.
        run_folders: options that name commands, and for each the option of the folder where these run. A command with
            them has settings: ``mlgokit.toml`` may say any of its options.
    """

    module: str = ""
    kind: str = ""
    group: Group
    summary: str
    folder: str = ""
    plugin: str = ""
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    run_folders: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def place(self) -> str:
        """The module's whole name."""
        return f"mlgokit.commands.{self.module}"

    @property
    def configuration(self) -> type:
        """The dataclass of its options."""
        return getattr(importlib.import_module(self.place), self.kind)

    @property
    def run(self) -> Callable[..., Any]:
        """What carries it out."""
        return importlib.import_module(self.place).run

    @property
    def render(self) -> "Callable[[Any, Console], None] | None":
        """What prints its result, if that has a form of its own."""
        module = importlib.import_module(self.place)
        page: Callable[[Any], Page] | None = getattr(module, "page", None)
        if page is None:
            return getattr(module, "render", None)
        from mlgokit.pages.terminal import print_page

        return lambda result, console: print_page(page(result), console)

    @property
    def exit_code(self) -> Callable[[Any, Any], int] | None:
        """What says how its result ends the process, if not always with 0."""
        return getattr(importlib.import_module(self.place), "exit_code", None)


_DAILY, _LEARNING, _OTHER_TOOLS, _MACHINE = Group

_DECLARED = {
    "init": Command(
        group=_DAILY, summary="write a project's settings, for advise, tune and check", folders=("folder",)
    ),
    "tune": Command(
        group=_DAILY,
        summary="search one project for its smallest build",
        folder="folder",
        plugin="output",
        run_folders={"--build": "--build-folder", "--cargo": "--link-folder"},
    ),
    "advise": Command(
        group=_DAILY,
        summary="which free flags would make a build smaller",
        folder="folder",
        run_folders={"--build": "--build-folder", "--cargo": "--cargo-folder"},
    ),
    "size": Command(group=_DAILY, summary="where the bytes of a program are; two compared", files=("output",)),
    "build": Command(group=_DAILY, summary="run a build with a plugin in its compilers"),
    "check": Command(
        group=_DAILY,
        summary="what a plugin still saves today; budgets in CI",
        run_folders={"--build": "--build-folder", "--cargo": "--cargo-folder"},
    ),
    "evaluate": Command(
        group=_DAILY, summary="compare two ways to compile, and say whether to ship", files=("output",)
    ),
    "bench": Command(
        group=_DAILY,
        summary="build and run programs in two ways; count and time",
        files=("output",),
        folders=("folder",),
    ),
    "explain": Command(group=_DAILY, summary="why one module became what it is"),
    "quickstart": Command(
        group=_LEARNING, summary="all steps once, from listed projects to a plugin", folders=("folder",)
    ),
    "corpus fetch": Command(group=_LEARNING, summary="fetch the sources of listed projects", folders=("folder",)),
    "corpus extract": Command(group=_LEARNING, summary="make a corpus of fetched sources", folder="corpus"),
    "corpus import": Command(
        module="corpus.import_build", group=_LEARNING, summary="make a corpus of an existing build", folder="corpus"
    ),
    "corpus combine": Command(group=_LEARNING, summary="join several corpora", folders=("corpus",)),
    "corpus link": Command(
        group=_LEARNING, summary="make a corpus of what linkers compile with -flto", folders=("corpus",)
    ),
    "corpus functions": Command(group=_LEARNING, summary="make a corpus of single functions", folder="corpus"),
    "corpus group": Command(
        kind="GroupFunctions", group=_LEARNING, summary="link single functions into larger modules", folder="corpus"
    ),
    "corpus record": Command(
        group=_LEARNING, summary="run a build, and write down what it compiles", files=("output",), folders=("corpus",)
    ),
    "corpus override": Command(
        group=_LEARNING, summary="take the options of a local ThinLTO build from its link", folders=("corpus",)
    ),
    "corpus verify": Command(group=_LEARNING, summary="whether modules give the code of their build"),
    "corpus info": Command(group=_LEARNING, summary="what is in a corpus"),
    "corpus split": Command(group=_LEARNING, summary="choose the projects to hold out", folders=("corpus",)),
    "trace": Command(
        group=_LEARNING,
        summary="log what the compiler decides in a corpus",
        folder="output",
        files=("tfrecord", "performance"),
        folders=("store",),
    ),
    "vocab": Command(group=_LEARNING, summary="quantiles of the features of traces", folders=("output",)),
    "train": Command(group=_LEARNING, summary="learn a policy from a corpus", folder="output", folders=("store",)),
    "importance": Command(group=_LEARNING, summary="which features decide what a policy does", files=("output",)),
    "export plugin": Command(
        module="export", kind="Export", group=_OTHER_TOOLS, summary="policies as a plugin for clang", plugin="output"
    ),
    "export policy": Command(
        group=_OTHER_TOOLS, summary="policies for different processors in one file", files=("output",)
    ),
    "export replay": Command(
        group=_OTHER_TOOLS, summary="inlining decisions for a compiler that loads no plugin", folders=("output",)
    ),
    "export tflite": Command(
        group=_OTHER_TOOLS, summary="a policy for an LLVM in development mode", folders=("output",)
    ),
    "export tosa": Command(group=_OTHER_TOOLS, summary="a policy as TOSA, for LLVM 24", folders=("output",)),
    "export llvm": Command(
        group=_OTHER_TOOLS, summary="policies to be built into an LLVM in release mode", folders=("output",)
    ),
    "import-policy": Command(group=_OTHER_TOOLS, summary="a policy from a TFLite model", files=("output",)),
    "compat": Command(group=_OTHER_TOOLS, summary="calls of ml-compiler-opt's tools and mlgo-utils"),
    "report": Command(
        kind="MakeReport", group=_OTHER_TOOLS, summary="a result as a page, HTML and Markdown", files=("output",)
    ),
    "doctor": Command(group=_MACHINE, summary="what works with which LLVM on this machine"),
    "completion": Command(group=_MACHINE, summary="the completion of bash, zsh or fish"),
    "worker": Command(group=_MACHINE, summary="compile here for commands on other machines"),
}
COMMANDS = {
    name: replace(
        one,
        module=one.module or name.replace("corpus ", "corpus.").replace(" ", "_").replace("-", "_"),
        kind=one.kind or name.removeprefix("corpus ").title().replace(" ", "").replace("-", ""),
    )
    for name, one in _DECLARED.items()
}
"""Every command by its words, in the order of the help."""
GROUPS = {
    "corpus": "Make and look at corpora.",
    "export": "Turn policies and tuned decisions into what a compiler can load.",
}
"""Commands that have others, and what they are for."""


def find_command(configuration: Any) -> Command:
    """The command whose options a value is."""
    name = type(configuration).__name__
    return next(one for one in COMMANDS.values() if one.kind == name and isinstance(configuration, one.configuration))


def json_values(result: Any) -> dict[str, Any]:
    """What a command returned as JSON values: a dictionary, what it has as ``to_json``, or its fields."""
    if isinstance(result, dict):
        return cast("dict[str, Any]", result)
    if hasattr(result, "to_json"):
        return result.to_json()
    from mlgokit.manifest import plain_json

    return plain_json(result)
