#include "inliner/FunctionLevels.h"

#include <algorithm>

using namespace llvm;

namespace mlgokit {

FunctionLevels::FunctionLevels(LazyCallGraph &Graph) {
  // The inliner's walk does this first of all, and not again.
  Graph.buildRefSCCs();
  for (LazyCallGraph::RefSCC &Component : Graph.postorder_ref_sccs())
    for (LazyCallGraph::SCC &Cycle : Component) {
      unsigned Level = 0;
      for (LazyCallGraph::Node &Caller : Cycle)
        for (LazyCallGraph::Edge &Edge : Caller->calls()) {
          // Those of the same cycle have no level yet.
          auto Found = Levels.find(&Edge.getFunction());
          if (Found != Levels.end())
            Level = std::max(Level, Found->second + 1);
        }
      for (LazyCallGraph::Node &Caller : Cycle)
        Levels[&Caller.getFunction()] = Level;
    }
}

} // namespace mlgokit
