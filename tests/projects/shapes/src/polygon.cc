#include "polygon.h"

bool Polygon::add(Point point) {
  if (count_ == most)
    return false;
  points_[count_++] = point;
  return true;
}

template <class Term> double Polygon::sum(Term term) const {
  double total = 0;
  for (int i = 0; i < count_; ++i)
    total += term(points_[i], points_[(i + 1) % count_]);
  return total;
}

double Polygon::area() const {
  return sum([](Point a, Point b) { return a.x * b.y - b.x * a.y; }) / 2;
}

double Polygon::perimeter() const { return sum(distance); }
