"""Functions with many targets of a jump, drawn by a seed, and a program that runs each of them.

Every function is ``W f(W *r, const unsigned char *p, unsigned n)``: it reads at most ``n`` bytes of a program ``p``,
works on eight registers ``r``, and calls ``ask``, of which it knows nothing.
Behind the program are :data:`TAIL` zeros.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

HEADER = """typedef unsigned long W;
#ifdef __cplusplus
extern "C" {
#endif
W ask(W);
void note(const char *, W);
#ifdef __cplusplus
}
#endif
"""
"""What the functions are compiled with."""
TAIL = 8
"""Zeros behind a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatcher:
    """One function.

    Attributes:
        name: of the function.
        shape: what was drawn, a name of :data:`SHAPES`.
        targets: how many it was drawn with.
        text: its source, helpers included, which :data:`HEADER` comes before.
        cpp: whether it is C++.
    """

    name: str
    shape: str
    targets: int
    text: str
    cpp: bool


def draw_dispatcher(name: str, shape: str, targets: int, rng: np.random.Generator) -> Dispatcher:
    """Draw a function of ``shape`` with about ``targets`` targets."""
    body = SHAPES[shape](name, targets, rng)
    cpp = shape in CPP
    linkage = 'extern "C" ' if cpp else ""
    helpers, _, inner = body.rpartition("\f")
    text = f"{helpers}{linkage}W {name}(W *r, const unsigned char *p, unsigned n) {{\n{inner}}}\n"
    return Dispatcher(name=name, shape=shape, targets=targets, text=text, cpp=cpp)


def driver(names: Sequence[str], *, rounds: int = 40, length: int = 64) -> str:
    """A C program that calls each function with the same ``rounds`` programs of ``length`` bytes.

    It prints one line for each function: a digest of what it returned, of its registers and of what it called.
    """
    declared = "".join(f"W {name}(W *, const unsigned char *, unsigned);\n" for name in names)
    listed = "".join(f'  {{"{name}", {name}}},\n' for name in names)
    return f"""#include <stdio.h>
{HEADER}{declared}static W digest;
static void mix(W x) {{ digest = (digest ^ x) * 0x100000001b3ul; digest ^= digest >> 29; }}
W ask(W x) {{ mix(x); return x * 7 + (digest & 31); }}
void note(const char *s, W x) {{ while (*s) mix(*s++); mix(x); }}
static const struct {{ const char *name; W (*f)(W *, const unsigned char *, unsigned); }} all[] = {{
{listed}}};
int main(void) {{
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {{
    unsigned state = 1;
    digest = 0;
    for (int k = 0; k < {rounds}; k++) {{
      unsigned char p[{length + TAIL}] = {{0}};
      W r[8];
      for (int j = 0; j < {length}; j++) p[j] = (state = state * 1664525u + 1013904223u) >> 24;
      for (int j = 0; j < 8; j++) r[j] = (state = state * 1664525u + 1013904223u) >> (k % 24);
      mix(all[i].f(r, p, {length}));
      for (int j = 0; j < 8; j++) mix(r[j]);
    }}
    printf("%s %lx\\n", all[i].name, digest);
  }}
}}
"""


_LOCALS = "abcdefgh"
_LOAD = "W " + ", ".join(f"{one} = r[{place}]" for place, one in enumerate(_LOCALS)) + ";\n"
_STORE = " ".join(f"r[{place}] = {one};" for place, one in enumerate(_LOCALS)) + "\n"
_CODE = "((unsigned)p[0] * 31u + p[1])"  # reaches more than 256 targets
_NEXT = "n -= 2, p += 2"


def _number(rng: np.random.Generator, below: int) -> int:
    return int(rng.integers(below))


def _step(rng: np.random.Generator, case: int) -> str:
    """A statement on locals, as handlers of interpreters are."""
    x, y, z = (str(one) for one in rng.choice(list(_LOCALS), 3))
    operator = "+-*&|^"[_number(rng, 6)]
    match _number(rng, 6):
        case 0:
            return f"{x} = {y} {operator} {z} + {case};"
        case 1:
            return f"if ({x} > {y}) {z} = {z} {operator} {_number(rng, 5000)}; else {x}--;"
        case 2:
            return f"{x} = ask({y} {operator} {_number(rng, 300)});"
        case 3:
            return f"{x} = {y} << {1 + _number(rng, 7)}; {z} ^= {x} >> {1 + _number(rng, 20)};"
        case 4:
            return f"if (n > 4) {x} {operator}= p[2]; {y} += {case};"
        case _:
            return f"{x} += {y} {operator} {z}; if ({x} & {1 << _number(rng, 12)}) {z} += {_number(rng, 99)};"


def _cases(count: int, make: Callable[[int], str], *, first: int = 0, stride: int = 1) -> str:
    return "".join(f"case {first + case * stride}: {make(case)}\n" for case in range(count))


def _returning(name: str, targets: int, rng: np.random.Generator) -> str:
    """Most cases end by a call."""

    def case(number: int) -> str:
        match _number(rng, 5):
            case 0:
                return f"k = ask(k - {number}); if (k & {1 + _number(rng, 7)}) return k; break;"
            case 1:
                return f'note("{name[:3]}{_number(rng, 9)}", k); return {_number(rng, 70000)};'
            case _:
                return f"return ask(k * {_number(rng, 9999)} + {number});"

    return f"W k = r[0];\nswitch ({_CODE} % {targets}) {{\n{_cases(targets, case)}}}\nreturn k;\n"


def _loop(_name: str, targets: int, rng: np.random.Generator) -> str:
    """An interpreter: one switch in a loop."""
    cases = _cases(targets, lambda case: _step(rng, case) + (" break;" if _number(rng, 8) else ""))
    return f"{_LOAD}for (; n > 1; {_NEXT}) switch ({_CODE} % {targets}) {{\n{cases}}}\n{_STORE}return a ^ h;\n"


def _replicated(_name: str, targets: int, rng: np.random.Generator) -> str:
    """An interpreter of labels as values: each handler jumps on."""
    labels = "".join(f"L{one}: {_step(rng, one)} NEXT;\n" for one in range(targets))
    table = ", ".join(f"&&L{one}" for one in range(targets))
    jump = f"#undef NEXT\n#define NEXT do {{ if (n < 4) goto end; {_NEXT}; goto *T[{_CODE} % {targets}]; }} while (0)\n"
    return f"{jump}static const void *const T[] = {{{table}}};\n{_LOAD}NEXT;\n{labels}end: {_STORE}return a ^ h;\n"


def _endless(_name: str, targets: int, rng: np.random.Generator) -> str:
    """The same with no test before the jump: the zeros behind the program end it."""
    jump = f"p += 2; goto *T[{_CODE} % {targets}];"
    labels = "".join(f"L{one}: {_step(rng, one)} {jump}\n" for one in range(1, targets))
    table = ", ".join(f"&&L{one}" for one in range(targets))
    return f"static const void *const T[] = {{{table}}};\n{_LOAD}{jump}\nL0: {_STORE}return a ^ h;\n{labels}"


def _central(_name: str, targets: int, rng: np.random.Generator) -> str:
    """Labels as values with one place that jumps."""
    labels = "".join(f"L{one}: {_step(rng, one)} goto next;\n" for one in range(targets))
    table = ", ".join(f"&&L{one}" for one in range(targets))
    return (
        f"static const void *const T[] = {{{table}}};\n{_LOAD}next: if (n < 4) {{ {_STORE} return a ^ h; }}\n"
        f"{_NEXT}; goto *T[{_CODE} % {targets}];\n{labels}"
    )


def _nested(_name: str, targets: int, rng: np.random.Generator) -> str:
    """Opcodes with a second byte, as processors have them."""
    outer = max(2, int(targets**0.5))
    inner = max(2, targets // outer)

    def second(number: int) -> str:
        return (
            f"switch (p[1] % {inner}) {{\n{_cases(inner, lambda case: _step(rng, number + case) + ' break;')}}} break;"
        )

    return (
        f"{_LOAD}for (; n > 3; {_NEXT}) switch (p[0] % {outer}) {{\n{_cases(outer, second)}}}\n{_STORE}return a ^ h;\n"
    )


def _several(_name: str, targets: int, rng: np.random.Generator) -> str:
    """Three switches, one after the other."""
    each = max(4, targets // 3)
    parts = [
        f"switch ((p[{place}] * 5u + p[{place + 1}]) % {each + 1}) {{\n"
        f"{_cases(each, lambda case: _step(rng, case) + ' break;')}default: {_step(rng, place)}\n}}\n"
        for place in range(3)
    ]
    return f"{_LOAD}if (n < 8) return 0;\n{''.join(parts)}{_STORE}return b + ask(a);\n"


def _constants(name: str, targets: int, rng: np.random.Generator) -> str:
    """Numbers and names by a code: LLVM makes tables of them."""
    numbers = _cases(targets, lambda _: f"k = {_number(rng, 1 << 20)}; break;")
    texts = _cases(targets, lambda _: f's = "{name[:2]}{_number(rng, 1000)}"; break;', stride=1 + _number(rng, 3))
    return (
        f'W k = r[1];\nconst char *s = "none";\nswitch ({_CODE} % {targets}) {{\n{numbers}}}\n'
        f"switch (p[2] * 3u) {{\n{texts}}}\nnote(s, k);\nreturn ask(k);\n"
    )


def _states(_name: str, targets: int, rng: np.random.Generator) -> str:
    """A decoder of a protocol: a state, and what a byte does in it."""

    def state(number: int) -> str:
        return (
            f"if (byte == {_number(rng, 256)}) {{ state = {_number(rng, targets)}; k += byte; }} "
            f"else if (byte < {_number(rng, 256)}) state = {_number(rng, targets)}; "
            f"else {{ {['k = k << 8 | byte', f'k = ask(k + {number})', 'return k', 'length = byte'][_number(rng, 4)]}; "
            f"state = {_number(rng, targets)}; }} break;"
        )

    return (
        "unsigned state = 0, length = 0;\nW k = r[2];\nwhile (n-- > 0) {\nunsigned byte = *p++;\n"
        f"if (length > 0) {{ length--; k ^= byte; continue; }}\nswitch (state) {{\n{_cases(targets, state)}}}\n}}\n"
        "r[2] = k;\nreturn state;\n"
    )


def _characters(_name: str, targets: int, rng: np.random.Generator) -> str:
    """A scanner: sparse cases of characters, some of which share what they do."""
    values = rng.permutation(255)[: min(targets, 255)] + 1
    cases: list[str] = []
    for place, value in enumerate(values.tolist()):
        shares = _number(rng, 3) == 0 and place + 1 < len(values)
        cases.append(f"case {value}:" + ("" if shares else f" {_step(rng, value)} break;"))
    text = "\n".join(cases)
    return f"{_LOAD}for (; n > 4; n--, p++) switch (*p) {{\n{text}\ndefault: c++;\n}}\n{_STORE}return c;\n"


def _words(_name: str, targets: int, rng: np.random.Generator) -> str:
    """Keywords by their first letter, then letter by letter."""

    def word(number: int) -> str:
        return (
            f"if (n > 3 && p[1] == {_number(rng, 256)} && p[2] == {_number(rng, 256)}) return {number}; "
            f'if (p[1] & {1 << _number(rng, 8)}) note("word{number % 50}", p[1]); break;'
        )

    return f"for (; n > 5; n--, p++) switch (*p % {targets}) {{\n{_cases(targets, word)}}}\nreturn ask(n);\n"


def _small(_name: str, targets: int, rng: np.random.Generator) -> str:
    """Much else, and small switches between."""
    parts: list[str] = []
    for place in range(max(1, targets // 4)):
        steps = "\n".join(_step(rng, case) for case in range(4 + _number(rng, 6)))
        cases = _cases(4, lambda case: _step(rng, case) + " break;")
        parts.append(f"{steps}\nswitch ((a >> {place % 9}) & 7) {{\n{cases}}}\n")
    return f"{_LOAD}if (n < 8) return 1;\n{''.join(parts)}{_STORE}return a + b;\n"


def _handlers(name: str, targets: int, rng: np.random.Generator) -> str:
    """Handlers are functions, some of which have two callers, and some of which others may call."""
    made = [
        f"{'static ' if _number(rng, 2) else ''}W {name}_{one}(W *r, W x) {{\n"
        f"{_LOAD}unsigned n = 3;\nconst unsigned char *p = 0;\n"
        f"{' '.join(_step(rng, one) for _ in range(1 + _number(rng, 4)))}\n{_STORE}return x + a + n + (p != 0); }}\n"
        for one in range(max(1, targets * 2 // 3))
    ]
    cases = _cases(targets, lambda case: f"k = {name}_{case % len(made)}(r, k + {case}); break;")
    return f"{''.join(made)}\fW k = 0;\nfor (; n > 1; {_NEXT}) switch ({_CODE} % {targets}) {{\n{cases}}}\nreturn k;\n"


def _objects(name: str, targets: int, rng: np.random.Generator) -> str:
    """Cases with objects that are destroyed, and what throws is caught."""
    guard = (
        f"namespace {{ struct G_{name} {{ W *at; W old; explicit G_{name}(W *r) : at(r), old(*r) {{}} "
        f'~G_{name}() {{ note("left", *at ^ old); }} }};\n'
        f"enum class Op_{name} {{ {', '.join(f'k{one}' for one in range(targets))} }}; }}\n"
    )

    def case(number: int) -> str:
        match _number(rng, 3):
            case 0:
                return f"{{ G_{name} kept(r + {number % 8}); r[{number % 8}] = ask(k + {number}); break; }}"
            case 1:
                return f"k = ask(r[{_number(rng, 8)}] - {number}); if (k % 97 == {number % 97}) throw k; break;"
            case _:
                return f"r[{_number(rng, 8)}] += k * {_number(rng, 999)}; break;"

    text = "".join(f"case Op_{name}::k{one}: {case(one)}\n" for one in range(targets))
    return (
        f"{guard}\fW k = 0;\ntry {{ for (; n > 1; {_NEXT}) switch (static_cast<Op_{name}>({_CODE} % {targets})) {{\n"
        f"{text}}} }} catch (W thrown) {{ return thrown; }}\nreturn k;\n"
    )


SHAPES: dict[str, Callable[[str, int, np.random.Generator], str]] = {
    "switch": _returning,
    "switch in a loop": _loop,
    "nested switches": _nested,
    "several switches": _several,
    "constants": _constants,
    "states": _states,
    "characters": _characters,
    "words": _words,
    "small switches": _small,
    "handlers": _handlers,
    "objects": _objects,
    "goto": _endless,
    "goto with a test": _replicated,
    "goto from one place": _central,
}
"""By the name of a shape, what draws the body of a function from its name and number of targets; helpers come before a
form feed."""
CPP = frozenset({"objects"})
"""Shapes in C++."""
