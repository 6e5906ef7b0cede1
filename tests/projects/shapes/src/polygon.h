#pragma once
#include "shape.h"

class Polygon : public Shape {
public:
  static constexpr int most = 16;
  bool add(Point point);
  double area() const override;
  double perimeter() const override;

private:
  template <class Term> double sum(Term term) const;
  Point points_[most];
  int count_ = 0;
};
