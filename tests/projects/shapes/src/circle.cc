#include "circle.h"

namespace {
constexpr double pi = 3.14159265358979;
}

double Circle::area() const { return pi * square(radius_); }
double Circle::perimeter() const { return 2 * pi * radius_; }
