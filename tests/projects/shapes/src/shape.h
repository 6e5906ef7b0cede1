#pragma once

struct Point {
  double x = 0, y = 0;
};

struct Shape {
  virtual ~Shape() = default;
  virtual double area() const = 0;
  virtual double perimeter() const = 0;
};

inline double distance(Point one, Point other) {
  double x = one.x - other.x, y = one.y - other.y;
  return __builtin_sqrt(x * x + y * y);
}

inline double square(double x) { return x * x; }
