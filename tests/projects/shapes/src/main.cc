#include "circle.h"
#include "config.h"
#include "polygon.h"
#include "scene.h"

#include <cstdio>

int main() {
  Circle circle({1, 2}, 3);
  Polygon square;
  const Point corners[] = {{0, 0}, {2, 0}, {2, 2}, {0, 2}};
  for (Point corner : corners)
    square.add(corner);
  const Shape *shapes[] = {&circle, &square};
#ifdef PERIMETER
  std::printf("%s: %.3f\n", SHAPES_NAME, total_perimeter(shapes, 2));
#else
  std::printf("%s: %.3f\n", SHAPES_NAME, total_area(shapes, 2));
#endif
}
