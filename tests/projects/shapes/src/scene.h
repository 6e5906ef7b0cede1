#pragma once
#include "shape.h"

double total_area(const Shape *const *shapes, int count);
double total_perimeter(const Shape *const *shapes, int count);
