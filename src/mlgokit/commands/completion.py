"""The command that prints the completion of a shell."""

import contextlib
import io
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from mlgokit.commands.declared_options import declared_options
from mlgokit.commands.parser import parse
from mlgokit.commands.table import COMMANDS, GROUPS
from mlgokit.progress import Report, say_nothing

_HELP = ("--help", "--help-all")
_BASH = """# Completion of mlgokit for bash: source this file, or put it where bash-completion looks.
_mlgokit() {
  local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} first= second= word words=
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ $word == -* ]]; then continue; fi
    if [[ -z $first ]]; then first=$word; else second=$word; break; fi
  done
  case "$first $second" in
CASES
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _mlgokit mlgokit
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Print a script that completes commands and options: completion bash, zsh or fish. It needs python3 in PATH."""

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Shell that the completion script is for."""


def run(config: Completion, *, report: Report = say_nothing) -> dict[str, Any]:  # noqa: ARG001  (all commands take one)
    """Make the script."""
    if config.shell == "bash":
        # That of tyro takes lines of help for words, and completes no files.
        return {"shell": config.shell, "script": _bash_script()}
    script = io.StringIO()
    with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
        parse(["--tyro-print-completion", config.shell])
    return {"shell": config.shell, "script": script.getvalue()}


def render(result: dict[str, Any], console: Console) -> None:
    """Print the script as it is."""
    console.file.write(result["script"])


def _bash_script() -> str:
    """A script with the words of all commands: options where the word begins with a dash, else choices and files."""
    cases = [_bash_case(name) for name in COMMANDS]
    for group in GROUPS:
        below = " ".join(name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{group} "))
        cases.append(f'    "{group} "*) words="{below}" ;;')
    first = " ".join(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS))
    cases.append(f'    *) words="{first} --version --json {" ".join(_HELP)}" ;;')
    return _BASH.replace("CASES", "\n".join(cases))


def _bash_case(name: str) -> str:
    """The words of one command, by the word before."""
    command = COMMANDS[name]
    options = declared_options(command.place, command.kind)
    choices = {one.names: one.value[1:-1].replace(",", " ") for one in options if one.value.startswith("{")}
    places = [words for one in options if one.is_positional for words in (choices.get(one.names),) if words]
    values = "".join(
        f' {"|".join(one.names)}) words="{choices[one.names]}" ;;'
        for one in options
        if one.names in choices and not one.is_positional
    )
    named = " ".join(word for one in options if not one.is_positional for word in one.names)
    plain = " ".join(places)
    pattern = f'"{name}"' if " " in name else f'"{name} "*'
    return (
        f'    {pattern}) case "$before" in{values} *) words="{plain}"; '
        f'if [[ $cur == -* ]]; then words="{named} {" ".join(_HELP)}"; fi ;; esac ;;'
    )
