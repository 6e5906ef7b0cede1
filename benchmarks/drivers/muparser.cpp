// Reads expressions, and evaluates each for many values.
#include "muParser.h"
#include "input.h"
#include <string>

int main() {
  uint64_t State = 1;
  for (const char *Text : {"x*x + 3*x - 1/(x + 7)", "sin(x)*cos(y) + sqrt(abs(x - y))", "x > y ? x^3 : y^2 - x",
                           "min(x, y, 3) + max(x, 2*y) + sum(x, y, 1)", "(x + y)*(x - y)*(x*y + 1)/(1 + x^2 + y^2)"}) {
    for (int Round = 0; Round < 40; ++Round) {
      double X = 0.5, Y = Round;
      mu::Parser Parser;
      Parser.DefineVar("x", &X);
      Parser.DefineVar("y", &Y);
      Parser.DefineConst("half", 0.5);
      Parser.SetExpr(std::string(Text) + " + half*" + std::to_string(Round));
      for (int Step = 0; Step < 1500; ++Step, X += 0.25) {
        double Value = Parser.Eval();
        State = digest(State, &Value, sizeof(Value));
      }
    }
  }
  report("values", State);
}
