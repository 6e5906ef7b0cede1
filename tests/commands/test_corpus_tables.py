import io
from pathlib import Path

from rich.console import Console

from mlgokit.commands.corpus import info as corpus_info, split
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.identity import Kinship
from mlgokit.corpus.info import CorpusInfo, ProjectInfo, SkippedReason
from mlgokit.corpus.split import ProjectSplit, SplitResult
from mlgokit.pages.terminal import print_page

FAILURE = ModuleFailure(name="p/d.o", project="p", reason="d.c:1: error: [red]'x'")


def project(name: str, **parts: object) -> ProjectInfo:
    values = {
        "name": name,
        "languages": ("c++",),
        "held_out": False,
        "modules": 1234,
        "held_out_modules": 0,
        "copies": 0,
        "bitcode_bytes": 5_600_000,
        "text_bytes": 0,
        "functions": 10,
        "call_sites": 30,
        "decidable_call_sites": 20,
        "instructions": 400,
        "front_end_seconds": 1.0,
        "failures": 0,
    }
    return ProjectInfo(**{**values, **parts})


def corpus(*projects: ProjectInfo, **parts: object) -> CorpusInfo:
    values = {
        "folder": Path("corpus"),
        "modules": sum(one.modules for one in projects),
        "bitcode_bytes": 11_200_000,
        "languages": {"c++": 2468},
        "described": sum(one.modules for one in projects),
        "functions": 20,
        "call_sites": 60,
        "decidable_call_sites": 40,
        "instructions": 800,
        "has_thinlto": False,
        "has_override": False,
        "translated": (),
        "projects": projects,
        **dict.fromkeys(("failures", "missing", "damaged", "undescribed", "skipped", "duplicates"), ()),
        **dict.fromkeys(("same_content", "leaks", "kinships"), ()),
    }
    return CorpusInfo(**{**values, **parts})


def printed(info: CorpusInfo | SplitResult) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=80)
    print_page(corpus_info.page(info) if isinstance(info, CorpusInfo) else split.page(info), console)
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_a_corpus_is_a_table_and_a_few_sentences():
    lines = printed(
        corpus(
            project("double-conversion", copies=1),
            project("re2", held_out_modules=1234),
            project("[b]odd", held_out_modules=3, languages=("c", "c++")),
        )
    )
    assert "double-conversion C++ yes, 1 copy 1,234 10 20 5,600" in lines
    assert "re2 C++ held out 1,234 10 20 5,600" in lines
    assert "[b]odd C, C++ 3 held out 1,234 10 20 5,600" in lines
    assert "3 projects 3,702 20 40 11,200" in lines
    assert "Modules: 2,468 in C++; 1,237 held out, 2,464 to train on." in lines
    assert (
        "Before optimization: 800 instructions, 60 call sites, 40 of them with a callee defined in the same module."
        in lines
    )


def test_unusual_facts_of_a_corpus_are_listed():
    lines = printed(
        corpus(
            project("p", text_bytes=70),
            described=1200,
            has_thinlto=True,
            has_override=True,
            translated=("-cc1", "-O2"),
            skipped=(SkippedReason(reason="error: '...'", count=1, examples=(FAILURE,)),),
            duplicates=(tuple(f"p/{index}" for index in range(6)), *((("a", "b"),) * 5)),
            same_content=(("p/a", "q/b"),),
            leaks=("p/a",),
            kinships=(Kinship(held_out="q", training="p", shared=0.63),),
        )
    )
    for line in (
        "Code size at plain -Oz (modules where it is known): 70 bytes.",
        "Functions, calls and instructions are not counted for 34 modules.",
        "The modules are of a ThinLTO build; each has its part of the index.",
        "One command line serves all modules (global_command_override).",
        "It is a compiler driver's, and compiled as: -cc1 -O2",
        "Modules with the same bitcode: 6 groups, 10 copies",
        "p/0, p/1, p/2, p/3 and 2 more",
        "1 more; --json has all",
        "Modules the same but for names, paths and debug information: 1 groups, 1 copies",
        "1 training modules are skipped because a held-out module is a copy of them: p/a.",
        "Skipped 1: error: '...'",
        "p/d.o: d.c:1: error: [red]'x'",
    ):
        assert line in lines
    assert any(line.startswith("q (held out) and p (training) share about 63% of the functions") for line in lines)


def test_many_projects_are_summed_up():
    lines = printed(corpus(*(project(f"p{index}", modules=2) for index in range(70))))
    assert "10 more 20" in lines


def test_a_split_is_a_table():
    result = SplitResult(
        folder=Path("corpus"),
        share=0.2,
        seed=1,
        projects=(
            ProjectSplit(name="p", by="project", training=3, copies=1, held_out=0),
            ProjectSplit(name="q", by="listed", training=0, copies=0, held_out=1200),
        ),
        leaks=("p/a",),
        kinships=(),
        notes=("Of 2 projects 1 is held out.",),
    )
    lines = printed(result)
    assert lines[0] == "Split of corpus, share 0.2, seed 1"
    assert "p hash of the project 3 1" in lines
    assert "q name 1,200" in lines
    assert "2 projects 3 1 1,200" in lines
    assert "Of 2 projects 1 is held out." in lines
