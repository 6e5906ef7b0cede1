// What the inliner decided in a module, as a digest.
#ifndef MLGOKIT_SHARED_DECIDED_H
#define MLGOKIT_SHARED_DECIDED_H

#include <array>
#include <cstdint>
#include <optional>

namespace mlgokit {

/// An advisor begins that notes all its decisions; those before are forgotten, as far as this thread goes.
void beginDecisions();

/// The answer to the next question.
void noteDecision(bool Inline);

/// Of all answers since the beginning, in their order, which then are forgotten; nothing if nobody noted any. A
/// compiler asks the next question as the answers before have it, so two compilations of one module with one command
/// line and one digest are the same.
std::optional<std::array<uint8_t, 16>> takeDecisions();

} // namespace mlgokit

#endif
