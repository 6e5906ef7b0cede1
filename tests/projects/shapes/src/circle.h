#pragma once
#include "shape.h"

class Circle : public Shape {
public:
  Circle(Point center, double radius) : center_(center), radius_(radius) {}
  double area() const override;
  double perimeter() const override;

private:
  Point center_;
  double radius_;
};
