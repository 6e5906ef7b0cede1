"""What :mod:`fuzz_corpus` knows of a reader; :mod:`fuzz_readers` and :mod:`fuzz_formats` have them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Framed = tuple[bytes, Callable[[bytes], bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Something that reads data of others.

    Attributes:
        seeds: good inputs that are mutated.
        read: reads the bytes; gets a folder for its input and one for its output.
        is_text: whether the seeds are JSON, whose values are exchanged as well.
        inside: of an input with a frame that mutations break, such as an archive or a length: what is in the frame, and
            what puts something else in its place. Half of the mutations are made there.
    """

    seeds: Sequence[bytes]
    read: Callable[[bytes, Path, Path], None]
    is_text: bool = False
    inside: Callable[[bytes], Framed] | None = None
