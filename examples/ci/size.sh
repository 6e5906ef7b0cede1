#!/bin/sh
# The steps of CI that hold the sizes of programs which any compiler has built: no plugin, nothing tuned.
# docs/how-to/ci.md says how to use them.
#
# usage: size.sh PROGRAM[=BYTES]...
#
# BYTES is how many of a program may be loaded. $MLGOKIT_MAX_GROWTH is by how much percent it may have grown since the
# reports in the folder $MLGOKIT_BASELINE, which an earlier call left; a program without one there is new.
# It runs after the build, and leaves in the folder $MLGOKIT_REPORTS (mlgokit-reports):
#   NAME.json  where the bytes of a program are; the baseline of later calls
#   size.md    what is different, for a comment on the change; it is printed, too
# Its exit code is 0, or 1 if a program is over a limit.
set -eu

if [ $# -lt 1 ]; then
    echo "usage: $0 PROGRAM[=BYTES]..." >&2
    exit 2
fi
reports=${MLGOKIT_REPORTS:-mlgokit-reports} baseline=${MLGOKIT_BASELINE:-} growth=${MLGOKIT_MAX_GROWTH:-}
mkdir -p "$reports"
: >"$reports/size.md"
code=0
for one; do
    program=${one%%=*} name=$(basename "${one%%=*}")
    earlier=$baseline/$name.json
    set -- "$program" --format markdown
    [ "$program" = "$one" ] || set -- "$@" "--max-bytes=${one#*=}"
    if [ -n "$baseline" ] && [ -f "$earlier" ]; then
        set -- "$earlier" "$@"
        [ -z "$growth" ] || set -- "$@" "--max-growth=$growth"
    fi
    mlgokit size "$@" >>"$reports/size.md" || code=$?
    mlgokit size "$program" --output "$reports/$name.json" >/dev/null || code=$?
done
cat "$reports/size.md"
exit "$code"
