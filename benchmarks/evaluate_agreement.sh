#!/bin/sh
# Builds a CMake project plainly and with a plugin, and prints what llvm-size calls text of each object and image.
# Usage: evaluate_agreement.sh SOURCES SCRATCH CLANG CLANGXX LLVM_SIZE PLUGIN FLAGS CMAKE_OPTION...
# It shares nothing with mlgokit: no wrapper, no copy of the sources, no reader of ELF files.
set -eu
sources=$1 scratch=$2 clang=$3 clangxx=$4 size=$5 plugin=$6 flags=$7
shift 7
for side in before after; do
  words=$flags
  [ "$side" = before ] || words="$flags -fpass-plugin=$plugin"
  # The same place for both, or paths in the code would differ.
  rm -rf "$scratch/build"
  cmake -S "$sources" -B "$scratch/build" -DCMAKE_C_COMPILER="$clang" -DCMAKE_CXX_COMPILER="$clangxx" \
    -DCMAKE_C_FLAGS="$words" -DCMAKE_CXX_FLAGS="$words" "$@" >"$scratch/log" 2>&1
  cmake --build "$scratch/build" -j2 >>"$scratch/log" 2>&1
  find "$scratch/build" -type f ! -path '*/CMakeFiles/[0-9]*' | sort | while read -r file; do
    case $(head -c 4 "$file" | tr -d '\0') in
    ?ELF*) "$size" "$file" | awk -v side="$side" -v name="${file#"$scratch/build/"}" 'NR == 2 { print side, name, $1 }' ;;
    esac
  done
done
