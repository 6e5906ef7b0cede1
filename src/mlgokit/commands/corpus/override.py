"""The command that fills the options of a ThinLTO corpus in."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.options.override import LinkOptions, fill_override, link_options, read_link_command
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Fill in the options of a corpus of a local ThinLTO link: what the linker's command means for clang."""

    link_command: Annotated[Path, tyro.conf.Positional]
    """File with the link command of the build, such as the output of `ninja -t commands program`."""
    corpus: Path = Path("corpus")
    """Folder of the corpus, whose corpus_description.json has no options in global_command_override yet."""
    build: Path | None = None
    """Build folder, which has the response files that the command names."""
    llvm: int | None = None
    """LLVM major version of the build; the newest supported one if not given."""


def run(config: Override, *, report: Report = say_nothing) -> LinkOptions:  # noqa: ARG001  (all commands take one)
    """Translate the command and write the options into the corpus.

    Raises:
        CorpusError: the corpus has options already.
        InputError: the command names a profile, and there is none.
        UsageError: the file has no command that links.
    """
    words = read_link_command(config.link_command)
    found = link_options(words, toolchain=find_toolchain(config.llvm), folder=config.build)
    fill_override(config.corpus, found.options, build=config.build or Path())
    return found
