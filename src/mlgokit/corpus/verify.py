"""Verification that a corpus gives the build's code: modules are compiled without the plugin, and compared.

The build's object is the one that it left, or, for a corpus that was made from sources by the front end alone, what our
clang makes of the same source in one go. Compared are the bytes of sections, in which a field that the linker fills is
the same in both; what the linker will put there is in a relocation, which is a section of its own.
"""

import contextlib
import enum
import functools
import glob
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from mlgokit.compiler import process
from mlgokit.compiler.build_tree import BITCODE
from mlgokit.compiler.compile import COMPILE_SECONDS
from mlgokit.compiler.objects.elf import SHF_EXECINSTR, SHT_NOBITS, Elf, read_elf
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.pool import map_in_order
from mlgokit.compiler.request import Compiler, CompileRequest
from mlgokit.corpus.corpus import Corpus
from mlgokit.corpus.front_end import FrontEndJob, front_end_environment
from mlgokit.errors import InputError
from mlgokit.module import Module
from mlgokit.progress import Report, say_nothing

MOST_MODULES = 100
"""Default number of modules to compare."""

_MENTIONED = 8


class Verdict(enum.Enum):
    """The result of comparing one module."""

    SAME = "every section is the same"
    SAME_CODE = "the code is the same, other sections differ"
    DIFFERENT = "the code differs"
    FAILED = "the module does not compile"
    NO_REFERENCE = "the build's object is not there"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedModule:
    """The comparison of one module, with the size of the code in the build's object.

    The ``reason`` is the error, or the names of the sections that differ.
    """

    name: str
    verdict: Verdict
    reason: str = ""
    text_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """The comparisons of all modules that were looked at, in the order of the corpus, which has so many (``of``)."""

    modules: tuple[VerifiedModule, ...]
    of: int

    @property
    def verified(self) -> bool:
        """Whether at least one module was compared, and all code is the same."""
        return bool(self.modules) and all(
            module.verdict in {Verdict.SAME, Verdict.SAME_CODE} for module in self.modules
        )

    def to_json(self) -> dict[str, Any]:
        """Convert the result to plain JSON values."""
        counts = Counter(module.verdict for module in self.modules)
        return {
            "verified": self.verified,
            "modules": len(self.modules),
            "of": self.of,
            "text_bytes": sum(module.text_bytes for module in self.modules),
            **{verdict.name.lower(): counts[verdict] for verdict in Verdict},
            "not_verified": [
                {"module": module.name, "found": module.verdict.value, "reason": module.reason}
                for module in self.modules
                if module.verdict not in {Verdict.SAME, Verdict.SAME_CODE}
            ],
        }


Reference = Callable[[Module, Path], Path | str]
"""A function that returns the build's object of a module, or why there is none; it may write to the given folder."""


def objects_of_build(folder: Path) -> Reference:
    """Find the objects that the build left below ``folder`` by the modules' names.

    The first component of a name may be missing, which is the project's; of a local ThinLTO link, lld's
    ``<program>.lto.<module>`` is taken (``-Wl,--save-temps``), if there is one only.
    """

    def find(module: Module, _: Path) -> Path | str:
        name = PurePosixPath(module.name)
        for path in (folder / name, folder.joinpath(*name.parts[1:])):
            if path.is_file() and not _is_bitcode(path):
                return path
        links = list(folder.glob(f"*.lto.{glob.escape(name.name)}"))
        return links[0] if len(links) == 1 else f"expected {name} below {folder}, found no such object"

    return find


def _is_bitcode(path: Path) -> bool:
    """Whether an object of a build is bitcode (``-flto``), so that the linker generates the code."""
    with path.open("rb") as file:
        return file.read(4) in BITCODE


def compile_in_one_step(jobs: Iterable[FrontEndJob], *, timeout_seconds: float = COMPILE_SECONDS) -> Reference:
    """Make a reference from sources: the corpus's compiler runs front end and back end in one process."""
    by_name = {job.name: job for job in jobs}

    def build(module: Module, folder: Path) -> Path | str:
        job = by_name.get(module.name)
        if job is None:
            return "expected the build's command for it, found none; give the database that the corpus was made from"
        output = folder / "build.o"
        clang, *options = job.front_end
        try:
            argv = Cc1Line(clang, options=options, own=("-emit-obj", "-o", str(output)), source=job.input)
        except InputError as error:
            return str(error)
        done = process.run(argv, timeout_seconds=timeout_seconds, cwd=job.directory, env=front_end_environment())
        if done.returncode != 0:
            return "the build's command did not finish in time" if done.timed_out else first_error(done.stderr)
        return output

    return build


def verify_corpus(
    corpus: Corpus,
    reference: Reference,
    *,
    compiler: Compiler,
    rng: np.random.Generator,
    most: int = MOST_MODULES,
    report: Report = say_nothing,
) -> VerifyResult:
    """Compile modules, at most ``most`` that ``rng`` draws, and compare them with the build's objects.

    The compiler is the build's: another version gives other code.
    """
    count = len(corpus.modules)
    drawn = rng.choice(count, size=min(most, count), replace=False)
    modules = [corpus.modules[int(index)] for index in np.sort(drawn)]
    verify = functools.partial(_verify, reference=reference, compiler=compiler)
    verified: list[VerifiedModule] = []
    with contextlib.closing(map_in_order(verify, modules, workers=compiler.workers)) as results:
        for result in results:
            verified.append(result)
            report(len(verified), len(modules), result.name)
    return VerifyResult(modules=tuple(verified), of=count)


def _verify(module: Module, *, reference: Reference, compiler: Compiler) -> VerifiedModule:
    with tempfile.TemporaryDirectory(prefix="mlgokit-") as scratch:
        folder = Path(scratch)
        expected = reference(module, folder)
        if isinstance(expected, str):
            return VerifiedModule(name=module.name, verdict=Verdict.NO_REFERENCE, reason=expected)
        output = folder / "module.o"
        result = compiler.compile(module, CompileRequest(keep_object=output))
        if result.sizes is None:
            return VerifiedModule(
                name=module.name, verdict=Verdict.FAILED, reason=f"{result.status.value}: {result.reason}"
            )
        try:
            recorded, actual = read_elf(expected), read_elf(output)
        except InputError as error:
            return VerifiedModule(name=module.name, verdict=Verdict.NO_REFERENCE, reason=str(error))
    return compare_objects(module.name, recorded, actual)


def compare_objects(name: str, recorded: Elf, actual: Elf) -> VerifiedModule:
    """Compare two objects section by section; sections of equal names are compared in order.

    Only code decides the verdict: executable sections, by name and bytes.
    """
    code = _sections(recorded, executable=True)
    text_bytes = sum(len(data) for pieces in code.values() for data in pieces)
    different = _differences(code, _sections(actual, executable=True))
    verdict = Verdict.DIFFERENT
    if not different:
        different = _differences(_sections(recorded, executable=False), _sections(actual, executable=False))
        verdict = Verdict.SAME_CODE if different else Verdict.SAME
    more = f" and {len(different) - _MENTIONED} more" if len(different) > _MENTIONED else ""
    reason = ", ".join(different[:_MENTIONED]) + more
    return VerifiedModule(name=name, verdict=verdict, reason=reason, text_bytes=text_bytes)


def _sections(elf: Elf, *, executable: bool) -> dict[str, list[bytes]]:
    contents: dict[str, list[bytes]] = {}
    is_code = (elf.sections["flags"] & SHF_EXECINSTR) != 0
    for index, name in enumerate(elf.names):
        section = elf.sections[index]
        if bool(is_code[index]) is executable and int(section["type"]) != 0:
            begin, size = int(section["offset"]), int(section["size"])
            data = b"%d zeros" % size if section["type"] == SHT_NOBITS else elf.data[begin : begin + size]
            contents.setdefault(name, []).append(data)
    return contents


def _differences(expected: Mapping[str, Sequence[bytes]], actual: Mapping[str, Sequence[bytes]]) -> list[str]:
    return sorted(
        name for name in expected.keys() | actual.keys() if list(expected.get(name, ())) != list(actual.get(name, ()))
    )
