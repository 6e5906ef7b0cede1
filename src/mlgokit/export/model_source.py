"""C++ header and source of a release-mode model for LLVM: the plugin's inference code, with policies as constants."""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources

import numpy as np
import numpy.typing as npt

from mlgokit.policy.network import OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.problems import Problem

COLUMNS = 33
"""Columns of each eviction feature: ``NumberOfInterferences`` in ``llvm/lib/CodeGen/MLRegAllocEvictAdvisor.h``."""
SELECTOR = "model_selector"
HEURISTIC_FEATURES = ("cost_estimate", "nested_inlines", "nested_inline_cost_estimate")
"""The features that LLVM's inlining heuristic depends on, in the order of ``HeuristicInputs``."""
OPTIONS = ("-O2", "-std=c++17", "-fPIC", "-fno-rtti", "-fno-exceptions", "-fvisibility=hidden", "-ffp-contract=off")
"""Compiler options. Without fused multiply-add, a policy computes the same numbers as in the plugin."""
_PARTS = (
    "shared/Span.h", "shared/FirstLayer.h", "shared/Network.h", "shared/Evaluator.h", "shared/Choice.h",
    "release/ReleaseModel.h", "shared/FirstLayer.cpp", "shared/Network.cpp", "shared/Evaluator.cpp",
    "shared/Choice.cpp", "release/ReleaseModel.cpp",
)  # fmt: skip
"""Sources in include order: each file comes after those that it includes."""
_HEADER = """\
// A policy of mlgokit for {problem}, as a model of LLVM's release mode. Written by `mlgokit export llvm`.
#ifndef MLGOKIT_{upper}_H
#define MLGOKIT_{upper}_H

#include <cstddef>
#include <string>

extern "C" {{
void *mlgokit_{name}_make();
void mlgokit_{name}_free(void *Model);
int mlgokit_{name}_argument(const char *Name, size_t Length);
int mlgokit_{name}_result(const char *Name, size_t Length);
void *mlgokit_{name}_argument_data(void *Model, int Index);
void *mlgokit_{name}_result_data(void *Model);
void mlgokit_{name}_run(void *Model);
}}

namespace llvm {{

class {name} final {{
public:
  {name}() : Model(mlgokit_{name}_make()) {{}}
  ~{name}() {{ mlgokit_{name}_free(Model); }}
  {name}(const {name} &) = delete;
  {name} &operator=(const {name} &) = delete;

  int LookupArgIndex(const std::string &Name) const {{ return mlgokit_{name}_argument(Name.data(), Name.size()); }}
  int LookupResultIndex(const std::string &Name) const {{ return mlgokit_{name}_result(Name.data(), Name.size()); }}
  void *arg_data(int Index) {{ return mlgokit_{name}_argument_data(Model, Index); }}
  void *result_data(int) {{ return mlgokit_{name}_result_data(Model); }}
  bool Run() {{
    mlgokit_{name}_run(Model);
    return true;
  }}

private:
  void *const Model;
}};

}} // namespace llvm

#endif
"""
_INTRODUCTION = """\
// The object beside {name}.h, as one source without any header of LLVM. Written by `mlgokit export llvm`.
//
//   clang++ {options} -c {name}.cpp
#if defined(__FAST_MATH__)
#error "a policy must give the same numbers everywhere: compile without -ffast-math"
#endif
#pragma STDC FP_CONTRACT OFF
// Two models in one compiler must not share functions.
#define mlgokit mlgokit_{name}
"""
_FUNCTIONS = """\
mlgokit::ReleaseModel *modelOf(void *Model) {{ return static_cast<mlgokit::ReleaseModel *>(Model); }}

}} // namespace

extern "C" {{

void *mlgokit_{name}_make() {{
  return new mlgokit::ReleaseModel({{std::begin(Inputs), std::end(Inputs)}}, {{{policies}}}, {mask}, {selector},
                                   {heuristic});
}}
void mlgokit_{name}_free(void *Model) {{ delete modelOf(Model); }}
int mlgokit_{name}_argument(const char *Name, size_t Length) {{
  std::vector<const char *> Names;
  for (const mlgokit::ReleaseInput &Input : Inputs)
    Names.push_back(Input.Name);
  return mlgokit::findName(Names, Name, Length);
}}
int mlgokit_{name}_result(const char *Name, size_t Length) {{
  return mlgokit::findName({{"fetch_{decision}"}}, Name, Length);
}}
void *mlgokit_{name}_argument_data(void *Model, int Index) {{ return modelOf(Model)->input(size_t(Index)); }}
void *mlgokit_{name}_result_data(void *Model) {{ return modelOf(Model)->answer(); }}
void mlgokit_{name}_run(void *Model) {{ modelOf(Model)->run(); }}

}} // extern "C"
"""


def model_header(problem: Problem, cpp_class: str) -> str:
    """Render the header with the class that LLVM's advisor includes; it calls C functions of the object file."""
    return _HEADER.format(problem=problem.name, name=cpp_class, upper=cpp_class.upper())


def model_source(problem: Problem, policies: Sequence[Policy], names: Sequence[str], cpp_class: str) -> Iterator[str]:
    """Generate the C++ source of the model, piece by piece.

    With ``names``, LLVM's option ``-ml-inliner-model-selector`` chooses one of the policies by its name.
    """
    yield _INTRODUCTION.format(name=cpp_class, options=" ".join(OPTIONS))
    for part in _PARTS:
        yield f"\n// {part}\n" + re.sub(
            r'^#include "(?:shared|release)/.*"\n', "", _packaged_text(part), flags=re.MULTILINE
        )
    asked = HEURISTIC_FEATURES if any(policy.asks_heuristic for policy in policies) else ()
    used = {feature for policy in policies for feature in (*policy.features, policy.mask, *asked)}
    inputs = [feature for feature in problem.features if feature.name in used]
    yield "\n#include <iterator>\n\nnamespace {\n\nconst mlgokit::ReleaseInput Inputs[] = {\n"
    for feature in inputs:
        is_float = "true" if feature.type == "float" else "false"
        yield f'    {{"feed_{feature.name}", {is_float}, {COLUMNS if feature.per_column else 1}}},\n'
    if names:
        yield f'    {{"feed_{SELECTOR}", false, 2}},\n'
    yield "};\n\n"
    places = {feature.name: position for position, feature in enumerate(inputs)}
    for index, policy in enumerate(policies):
        yield from _policy_source(policy, names[index] if names else "", index, places)
    yield _FUNCTIONS.format(
        name=cpp_class,
        policies=", ".join(f"makePolicy{index}()" for index in range(len(policies))),
        mask=places.get(problem.mask or "", "std::nullopt"),
        selector=len(inputs) if names else "std::nullopt",
        heuristic=f"mlgokit::HeuristicInputs{{{', '.join(str(places[name]) for name in asked)}}}"
        if asked
        else "std::nullopt",
        decision=problem.decision,
    )


def _policy_source(policy: Policy, name: str, index: int, places: dict[str, int]) -> Iterator[str]:
    """Generate a policy's arrays and a function ``makePolicy<index>`` that constructs it.

    ``places`` maps each feature to its position among the model's inputs.
    """
    arrays: dict[str, npt.NDArray[np.float32]] = {}
    normaliser = policy.normaliser
    if isinstance(normaliser, SignedLog):
        arrays |= {"Mean": normaliser.mean, "Scale": normaliser.scale}
        numbers = [f"Clip = {normaliser.clip.hex()}"]
    else:
        arrays |= {"Boundaries": normaliser.boundaries}
        features, most = normaliser.boundaries.shape
        lengths = normaliser.lengths or (most,) * features
        numbers = [
            "Normaliser = mlgokit::NormaliserKind::Quantile",
            f"QuantileCount = {most}",
            f"RowLengths = {{{', '.join(map(str, lengths))}}}",
            f"Nan = {normaliser.nan.hex()}",
        ]
    numbers += [f"{array}.assign(std::begin({array}{index}), std::end({array}{index}))" for array in arrays]
    for place, layer in enumerate(policy.layers):
        arrays |= {f"Weight{place}_": layer.weight, f"Bias{place}_": layer.bias}
        parts = [
            f"{{std::begin({part}{place}_{index}), std::end({part}{place}_{index})}}" for part in ("Weight", "Bias")
        ]
        numbers.append(f"Layers.push_back({{{layer.weight.shape[1]}, {layer.weight.shape[2]}, {', '.join(parts)}}})")
    kinds = {
        OutputKind.EFFECT_BYTES: "EffectBytes",
        OutputKind.LOGITS: "Logits",
        OutputKind.COLUMN_LOGIT: "ColumnLogit",
        OutputKind.PRIORITY: "Priority",
    }
    numbers += [
        f"Features = {len(policy.features)}",
        f"Members = {policy.members}",
        f"Output = mlgokit::OutputKind::{kinds[policy.output]}",
        f"BytesPerUnit = {float(policy.bytes_per_unit).hex()}",
        f"Caution = {float(policy.caution).hex()}",
        f"Doubt = {float(policy.doubt).hex()}",
    ]
    if policy.gate is not None:
        margins = ["INFINITY" if math.isinf(margin) else float(margin).hex() for margin in policy.gate.margins]
        numbers += [f"Gate = {policy.features.index(policy.gate.feature)}"]
        numbers += [f"Margins[{side}] = {margin}" for side, margin in enumerate(margins)]
    for array, values in arrays.items():
        yield f"const float {array}{index}[] = {{\n"
        yield from _format_literals(values.ravel())
        yield "};\n"
    high, low = selector_words(name)
    sources = ", ".join(str(places[feature]) for feature in policy.features)
    yield f"\nmlgokit::ReleasePolicy makePolicy{index}() {{\n  mlgokit::PolicyNumbers N;\n"
    yield from (f"  N.{number};\n" for number in numbers)
    yield f'  return {{"{name}", {high:#x}, {low:#x}, std::move(N), {{{sources}}}}};\n}}\n\n'


def _format_literals(values: Iterable[np.float32]) -> Iterator[str]:
    """Format values as hexadecimal float literals, which are exact."""
    words = [f"{float(value).hex()}f," for value in values]
    for begin in range(0, len(words), 8):
        yield f"    {' '.join(words[begin : begin + 8])}\n"


def _packaged_text(part: str) -> str:
    """Read a C++ file that is part of this package."""
    folder = "plugin" if part.startswith("shared/") else "export"
    return (resources.files("mlgokit") / folder / part).read_text()


def selector_words(name: str) -> tuple[int, int]:
    """Compute the two integers that LLVM passes to a model for a selector: high and low half of the name's MD5.

    Example:
        >>> [hex(word) for word in selector_words("")]
        ['0x7e42f8ec980980e9', '0x4b2008fd98c1dd4']
    """
    digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[8:], "little"), int.from_bytes(digest[:8], "little")
