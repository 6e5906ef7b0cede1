"""The stages for users' builds, with a build that a script stands in for."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.corpus import DatabaseOptions
from mlgokit.commands.corpus import import_build, record
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.build_notes import BuildOptionCounts
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.importers.database import ImportedCommands
from mlgokit.corpus.staleness import ProfileFit
from mlgokit.corpus.writer import Imported
from mlgokit.errors import CorpusError, UsageError


def recorded(monkeypatch: pytest.MonkeyPatch, **found: Any) -> None:
    def record_build(command: tuple[str, ...], *, timeout_seconds: float, **_: Any) -> dict[str, Any]:
        assert (command[0], timeout_seconds) == ("make", 240 * 60)
        return found

    monkeypatch.setattr(record, "record_build", record_build)
    monkeypatch.setattr(record, "find_toolchain", lambda _: None)


def test_a_recorded_build_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recorded(monkeypatch, seen=2, commands=2)
    database = tmp_path / "a b.json"
    assert record.run(record.Record(command=("make", "-j2"), output=database)) == {
        "database": str(database),
        "seen": 2,
        "commands": 2,
        "next": f"mlgokit corpus import --compile-commands '{database}' --baseline clang --corpus corpus",
    }


def test_a_recorded_build_can_be_imported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recorded(monkeypatch, commands=1)
    seen: list[import_build.Import] = []
    monkeypatch.setattr(import_build, "run", lambda config, **_: seen.append(config) or {"modules": 1})
    config = record.Record(
        command=("make",),
        output=tmp_path / "c.json",
        corpus=tmp_path / "corpus",
        level="Oz",
        compiler=CompilerOptions(workers=3),
    )
    assert record.run(config) == {"database": str(tmp_path / "c.json"), "commands": 1, "modules": 1}
    assert seen == [
        import_build.Import(
            compile_commands=tmp_path / "c.json",
            corpus=tmp_path / "corpus",
            level="Oz",
            llvm=None,
            workers=3,
            database=DatabaseOptions(baseline="clang"),
        )
    ]


@pytest.mark.parametrize(
    ("script", "seconds", "message"),
    [
        (
            "gcc-12 -c a.c -o a.o; exit 2",
            30,
            (
                "record: expected the build to succeed, found that it failed after 1 recorded compilations: "
                "sh -c 'gcc-12 -c a.c -o a.o; exit 2' ended with 2"
            ),
        ),
        (
            "sleep 60",
            1,
            (
                "record: expected the build to succeed, found that it failed after 0 recorded compilations: "
                "sh -c 'sleep 60' did not end within"
            ),
        ),
        ("true", 30, "sh -c true: expected a build that compiles, found that it called no compiler; clean the build"),
    ],
)
def test_a_build_that_gives_nothing(
    script: str, seconds: float, message: str, clang: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.c").touch()
    (tmp_path / "c.json").write_text("what CMake or an earlier call wrote")
    with pytest.raises(CorpusError) as caught:
        record.record_build(
            ("sh", "-c", script), database=tmp_path / "c.json", toolchain=clang, timeout_seconds=seconds
        )
    assert str(caught.value).startswith(message)
    assert (tmp_path / "c.json").read_text() == "what CMake or an earlier call wrote"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((), "record: expected a build after --, found nothing; give one, as in `record -- make -j2`"),
        (("no-such-make", "-j2"), "record: expected a program in no-such-make -j2, found no no-such-make; check the"),
    ],
)
def test_recording_an_empty_or_missing_command_is_misuse(command: tuple[str, ...], message: str, tmp_path: Path):
    with pytest.raises(UsageError) as caught:
        record.run(record.Record(command=command, output=tmp_path / "c.json"))
    assert str(caught.value).startswith(message)


def test_an_import_says_what_came_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    failures = tuple(ModuleFailure(name=f"p/{index}.o", project="p", reason="no") for index in range(20))
    seen: dict[str, Any] = {}

    def import_commands(database: Path, **options: Any) -> ImportedCommands:
        seen.update(options, database=database)
        imported = Imported(folder=tmp_path, modules=2, failures=30, examples=failures)
        counts = BuildOptionCounts(
            commands=32, left_out={"-fgcc": 3, "--driver-mode=cl": 1}, kept={"-fsanitize=address": 32}
        )
        counts = dataclasses.replace(counts, unknown=("-fgcc",), notes=("a.i makes no code",))
        fits = (ProfileFit(mismatched=2, missing=1), ProfileFit(mismatched=0, missing=0))
        return ImportedCommands(
            imported=imported,
            repeated=1,
            unwanted=2,
            without_code=1,
            baseline="clang 19 -Oz",
            options=counts,
            fits=fits,
        )

    monkeypatch.setattr(import_build, "import_commands", import_commands)
    monkeypatch.setattr(import_build, "find_toolchain", lambda major: f"LLVM {major}")
    config = import_build.Import(
        compile_commands=tmp_path / "c.json",
        corpus=tmp_path,
        llvm=19,
        level="Oz",
        include="src",
        workers=3,
        sandbox="off",
    )
    result = import_build.run(config)
    assert len(result.pop("reasons")) == 20
    assert result == {
        "corpus": str(tmp_path),
        "modules": 2,
        "failures": 30,
        "repeated_commands": 1,
        "unwanted_commands": 2,
        "commands_without_code": 1,
        "baseline": "clang 19 -Oz",
        "dropped_options": {"-fgcc": 3, "--driver-mode=cl": 1},
        "notes": [
            "a.i makes no code",
            "-fgcc (3 of 32 commands) is left out: this clang does not know it",
            (
                "--driver-mode=cl (1 of 32 commands) is left out: it could start a program or write a file, so it is "
                "not passed to clang"
            ),
            (
                "-fsanitize=address (32 of 32 commands) is kept: modules contain the sanitizer's checks, so "
                "measured code is larger and slower"
            ),
            (
                "the profile is stale for 2 functions whose control flow has changed, and lacks 1 functions, in 1 of 2 "
                "modules; these are compiled without counts; renew the profile if there are many"
            ),
        ],
    }
    assert (seen["toolchain"], seen["level"], seen["workers"], seen["wanted"].include) == ("LLVM 19", "Oz", 3, "src")
    assert seen["limits"].module_seconds == 120


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            import_build.Import(),
            "(--compile-commands, --objects, --params, --aquery, --thinlto, --bitcode), found none; name one",
        ),
        (
            import_build.Import(objects=Path("a"), aquery=Path("b")),
            "--bitcode), found --objects and --aquery; name one",
        ),
        (
            import_build.Import(objects=Path("a"), level="Oz"),
            "expected --level only with --compile-commands, found it with --objects; leave it out",
        ),
        (
            import_build.Import(compile_commands=Path("a"), embedded=True, include="x"),
            "expected --include only with --compile-commands, found it with --compile-commands --embedded",
        ),
        (
            import_build.Import(compile_commands=Path("a"), command_filter="x"),
            "only with --aquery or --compile-commands --embedded or --objects or --params, found it with --compile",
        ),
        (
            import_build.Import(objects=Path("a"), embedded=True),
            "expected --embedded only with --compile-commands",
        ),
        (
            import_build.Import(objects=Path("a"), llvm=19),
            "expected --llvm only with --compile-commands, found it with --objects",
        ),
        (
            import_build.Import(bitcode=Path("a"), options="-cc1 'a"),
            '--options: expected every quotation mark to be closed, found "\'a"; close the quotation',
        ),
        (
            import_build.Import(thinlto=Path("a"), options="-cc1", link_command=Path("b")),
            "import: expected --options or --link-command, found both; leave one out",
        ),
        (
            import_build.Import(thinlto=Path("a"), link_command=Path("no-such-file")),
            "no-such-file: expected a file with the link's command, found: No such file or directory; make",
        ),
        (
            import_build.Import(objects=Path("a"), project="../a"),
            "project: expected a name of letters, digits and ._+-,",
        ),
    ],
)
def test_a_call_that_contradicts_itself_is_refused(config: import_build.Import, message: str):
    with pytest.raises(UsageError) as caught:
        import_build.run(config)
    assert message in str(caught.value)
