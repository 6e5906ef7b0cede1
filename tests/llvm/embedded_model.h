// What embedded_model.cpp includes. It is compiled once for all models, as nearly all of their time would go there.
#ifndef EMBEDDED_MODEL_H
#define EMBEDDED_MODEL_H

#include "llvm/Analysis/ReleaseModeModelRunner.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#endif
