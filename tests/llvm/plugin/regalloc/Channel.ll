; LLVM makes its eviction advisor for a channel that is gone at once: nothing stays in the temporary folder, and its own
; options for advisors are refused. A folder that cannot be written to is said.
; RUN: mkdir -p %t.tmp
; RUN: TMPDIR=%t.tmp llc -load %plugin -mlgokit-eviction-policy=:first -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: ls -A %t.tmp | count 0
; RUN: not env TMPDIR=%t.none llc -load %plugin -mlgokit-eviction-policy=:first -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=FOLDER
; RUN: not llc -load %plugin -mlgokit-eviction-policy=:first -regalloc-enable-advisor=default -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=OPTION

; RUN: not llc -load %plugin -mlgokit-priority-policy=:random -regalloc-enable-priority-advisor=default -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=PRIORITY
; FOLDER: error: mlgokit: temporary folder {{.*}}.none: expected room for a folder, found: No such file or directory; name another with TMPDIR
; OPTION: error: mlgokit: expected either -regalloc-enable-advisor or MLGOKIT_EVICTION_POLICY or -mlgokit-eviction-policy, found both
; PRIORITY: error: mlgokit: expected either -regalloc-enable-priority-advisor or MLGOKIT_PRIORITY_POLICY or -mlgokit-priority-policy, found both
