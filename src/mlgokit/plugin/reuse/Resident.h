// A compiler that stays: it comes as far as the inliner once, and a child of it goes on from there for each request.
#ifndef MLGOKIT_REUSE_RESIDENT_H
#define MLGOKIT_REUSE_RESIDENT_H

namespace mlgokit {

/// Unless MLGOKIT_RESIDENT=1, returns at once. Else answers requests on descriptor 0 (docs/formats.md, "Resident
/// compilers") until it is closed, and ends the process; returns in each child, which has the request's environment
/// and the request's object as standard output.
void serveRequests();

} // namespace mlgokit

#endif
