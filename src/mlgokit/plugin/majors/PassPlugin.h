// Where LLVM declares what a pass plugin is.
#ifndef MLGOKIT_MAJORS_PASSPLUGIN_H
#define MLGOKIT_MAJORS_PASSPLUGIN_H

#include "llvm/Config/llvm-config.h"

#if LLVM_VERSION_MAJOR >= 22
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif

#endif
