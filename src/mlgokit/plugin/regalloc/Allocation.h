// How one function's registers are allocated otherwise than LLVM would: docs/formats.md, "Allocation tables".
#ifndef MLGOKIT_REGALLOC_ALLOCATION_H
#define MLGOKIT_REGALLOC_ALLOCATION_H

#include "shared/Settings.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/Register.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace mlgokit {

/// The answer to the \p Nth question, from 0, about one live range.
struct Departure {
  uint32_t Range;
  uint16_t Nth;
  uint16_t Choice; // of an eviction: the column; of a priority: docs/formats.md
};
static_assert(sizeof(Departure) == 8, "as in files");

struct Departures {
  std::vector<Departure> Evictions, Priorities;
};

/// Reads files with numbers in the byte order of x86-64 and AArch64.
class FileReader {
public:
  explicit FileReader(llvm::StringRef Bytes) : Bytes(Bytes) {}
  /// Copies the next bytes to \p Values; false if there are not so many.
  template <class T> bool read(T *Values, size_t Count = 1) {
    if (Count > left() / sizeof(T))
      return false;
    std::memcpy(static_cast<void *>(Values), Bytes.data() + At, Count * sizeof(T));
    At += Count * sizeof(T);
    return true;
  }
  bool read(std::vector<Departure> &Into, uint32_t Count) {
    if (Count > left() / sizeof(Departure))
      return false;
    Into.resize(Count);
    return read(Into.data(), Count);
  }
  size_t left() const { return Bytes.size() - At; }

private:
  llvm::StringRef Bytes;
  size_t At = 0;
};

/// The functions of a project that are allocated otherwise.
class AllocationTable {
public:
  static llvm::Expected<AllocationTable> parse(llvm::StringRef Bytes, llvm::StringRef Origin);
  const Departures *find(uint64_t Key) const;

private:
  std::vector<uint64_t> Keys;
  std::vector<Departures> Entries;
};

/// Reads the table, if there is one: the file that the settings name, else the one in the plugin.
llvm::Expected<std::optional<AllocationTable>> loadAllocations(const Settings &S);

/// A function as it comes to the allocator.
class FunctionShape {
public:
  explicit FunctionShape(const llvm::MachineFunction &MF);
  /// The same only for functions of one name that give the allocator the same questions, with or without debug
  /// information.
  uint64_t key() const { return Key; }
  /// The number of a live range: registers of the code in their order, then those that splitting makes.
  uint32_t numberOf(llvm::Register R) const;

private:
  std::vector<uint32_t> Numbers; // by virtual register
  uint32_t Used = 0;
  uint64_t Key = 0;
};

/// The questions of one problem about one function.
class Course {
public:
  /// What is to be answered otherwise: by a known choice, else by a drawn one, for which there is a number in [0, 1).
  struct Turn {
    std::optional<uint16_t> Choice;
    double Drawn = 0;
  };
  Course(llvm::ArrayRef<Departure> Known, double FlipProbability, uint64_t Seed);
  /// The next question is about this live range; nothing if LLVM's answer stands.
  std::optional<Turn> next(uint32_t Range);
  /// The last question was answered otherwise.
  void depart(uint16_t Choice);
  /// Takes the column that \p T names, or any other than \p Default, LLVM's; only one that \p Mask allows, else
  /// \p Default.
  size_t turn(const Turn &T, llvm::ArrayRef<int64_t> Mask, size_t Default);
  /// Whether no question will be answered otherwise.
  bool isIdle() const { return Known.empty() && !(FlipProbability > 0); }

  std::vector<Departure> Made;
  uint32_t Questions = 0;

private:
  llvm::DenseMap<uint64_t, uint16_t> Known;
  llvm::DenseMap<uint32_t, uint32_t> Asked;
  const double FlipProbability;
  const uint64_t Seed;
  Departure Last{};
  bool LastFits = false;
};

/// How one function is allocated.
struct Plan {
  FunctionShape Shape;
  Course Evictions, Priorities;
  bool ByRule = false;              // what is not turned is decided by the rule or the policy of the settings
  std::vector<unsigned> Given = {}; // priorities so far

  /// The priority to give instead of LLVM's.
  unsigned priority(unsigned Default, const std::optional<Course::Turn> &Turned);
  /// As near to \p Wanted as a choice can say.
  unsigned priorityNear(unsigned Wanted, unsigned Default);
};

/// Makes the plan for a function that comes to the allocator; none if it is allocated by policy or as LLVM would.
Plan *enterFunction(const llvm::MachineFunction &MF, const AllocationTable *Table);

/// The plan of the function that was entered last in this thread, if it is this one.
Plan *planOf(const llvm::MachineFunction &MF);

} // namespace mlgokit

#endif
