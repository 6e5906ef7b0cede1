// A view of numbers that somebody else keeps, for code that does without LLVM's library: a policy's arithmetic is also
// compiled into objects for builds of LLVM, whatever their version (mlgokit/export/release.py).
#ifndef MLGOKIT_SHARED_SPAN_H
#define MLGOKIT_SHARED_SPAN_H

#include <cstddef>

namespace mlgokit {

template <class T> class Span {
public:
  Span(const T *First, size_t Count) : First(First), Count(Count) {}
  /// Of a vector, an llvm::ArrayRef and the like.
  template <class Container> Span(const Container &All) : First(All.data()), Count(All.size()) {}

  const T *data() const { return First; }
  const T *begin() const { return First; }
  const T *end() const { return First + Count; }
  size_t size() const { return Count; }
  const T &operator[](size_t Index) const { return First[Index]; }
  Span slice(size_t From, size_t Length) const { return {First + From, Length}; }

private:
  const T *First;
  size_t Count;
};

} // namespace mlgokit

#endif
