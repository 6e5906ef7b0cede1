#include "scene.h"

namespace {
template <class Measure> double total(const Shape *const *shapes, int count, Measure measure) {
  double sum = 0;
  for (int i = 0; i < count; ++i)
    sum += measure(*shapes[i]);
  return sum;
}
} // namespace

double total_area(const Shape *const *shapes, int count) {
  return total(shapes, count, [](const Shape &shape) { return shape.area(); });
}

double total_perimeter(const Shape *const *shapes, int count) {
  return total(shapes, count, [](const Shape &shape) { return shape.perimeter(); });
}
