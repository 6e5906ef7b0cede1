; A plan holds for its function: evictions and priorities of the one in the table are overridden, and policies decide the
; other one's, as their logs say.
; RUN: %tool trials %t.none
; RUN: (cat %S/../Inputs/pressure.ll; sed '/^declare\|^target/d; s/busy/idle/' %S/../Inputs/pressure.ll) > %t.ll
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -o %t.s %t.ll
; RUN: %tool trials %t.trials %t.functions busy spill 0.5 1
; RUN: MLGOKIT_TRIALS=%t.trials MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -o %t.s %t.ll
; RUN: %tool allocations %t.table %t.tried
; RUN: llc -load %plugin -mlgokit-allocations=%t.table -mlgokit-eviction-policy=:default -mlgokit-eviction-log=%t.evictions -mlgokit-priority-policy=:default -mlgokit-priority-log=%t.priorities -O2 -o %t.s %t.ll
; RUN: (%tool log %t.evictions; %tool log %t.priorities) | uniq | FileCheck %s
; RUN: llc -O2 -o %t.plain %t.ll
; RUN: not cmp %t.plain %t.s
; RUN: sed -n '/^idle:/,$p' %t.plain > %t.idle
; RUN: sed -n '/^idle:/,$p' %t.s | cmp - %t.idle

; CHECK: idle
; CHECK-NOT: busy
