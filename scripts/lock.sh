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
mkdir -p requirements
cp "$scratch/dev.txt" requirements/dev.txt
cp "$scratch/train.txt" requirements/train.txt
