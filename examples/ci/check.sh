#!/bin/sh
# The steps of CI for a project with a tuned plugin: check what it still does, and keep the reports. GitHub's action and
# GitLab's job beside this file call it; docs/how-to/ci.md says how to use them.
#
# usage: check.sh PLUGIN BUILD-COMMAND [more options of `mlgokit check`]
#
# It runs in the project's folder, and leaves in the folder $MLGOKIT_REPORTS (mlgokit-reports):
#   check.json  the result; `--against` of a later call reads it
#   check.md   what is different, for a comment on the change; it is printed, too
# Its exit code is that of `mlgokit check`: 0, or 1 for a program over its limit and for decisions that are stale.
set -eu

if [ $# -lt 2 ]; then
    echo "usage: $0 PLUGIN BUILD-COMMAND [options of mlgokit check]" >&2
    exit 2
fi
plugin=$1 build=$2
shift 2
reports=${MLGOKIT_REPORTS:-mlgokit-reports}
mkdir -p "$reports"

code=0
mlgokit --json check "$plugin" --build "$build" "$@" >"$reports/check.json" || code=$?
if [ ! -s "$reports/check.json" ]; then
    printf '### mlgokit\n\n`mlgokit check` ended with %s and no result; the log says why.\n' "$code" >"$reports/check.md"
    exit "$code"
fi

python3 - "$reports/check.json" >"$reports/check.md" <<'PYTHON'
import json
import sys


def cell(text):
    """A name as a cell of a table: what Markdown would read in it is escaped."""
    return "".join(f"\\{one}" if one in "\\`*_|<>[]" else one for one in str(text) if one.isprintable())


with open(sys.argv[1]) as file:
    found = json.load(file)
print("### mlgokit: sizes with the tuned plugin\n")
print("| program | plain | tuned | change |\n|---|---:|---:|---:|")
for one in (found.get("built") or {}).get("programs", []):
    sides = [one["plain"], one["tuned"]]
    sizes = [side["image"] if side["status"] == "linked" else None for side in sides]
    shown = ["not linked" if size is None else f"{size:,}" for size in sizes]
    change = f"{100 * (sizes[1] / sizes[0] - 1):+.2f} %" if all(sizes) else ""
    print(f"| {cell(one['program'])} | {shown[0]} | {shown[1]} | {change} |")
print(f"\n{found['kept']} of {found['decisions']} decisions still apply.")
for sentence in found.get("violations", []):
    print(f"- {cell(sentence)}")
PYTHON
cat "$reports/check.md"
exit "$code"
