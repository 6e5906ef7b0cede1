; A table changes the function whose key it has, and no other; damage is said.
; RUN: %tool trials %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -o %t.plain %S/../Inputs/pressure.ll
; RUN: %tool trials %t.trials %t.functions busy spill 0.5 1
; RUN: MLGOKIT_TRIALS=%t.trials MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool allocations %t.table %t.tried
; RUN: llc -load %plugin -mlgokit-allocations=%t.table -O2 -o %t.other %S/../Inputs/pressure.ll
; RUN: not cmp %t.plain %t.other
; RUN: sed s/busy/idle/ %S/../Inputs/pressure.ll > %t.idle.ll
; RUN: llc -O2 -o %t.plain %t.idle.ll
; RUN: llc -load %plugin -mlgokit-allocations=%t.table -O2 -o %t.other %t.idle.ll
; RUN: cmp %t.plain %t.other
; RUN: head -c -5 %t.table > %t.short
; RUN: not llc -load %plugin -mlgokit-allocations=%t.short -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=SHORT
; RUN: (cat %t.table; echo) > %t.long
; RUN: not llc -load %plugin -mlgokit-allocations=%t.long -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=LONG
; RUN: not llc -load %plugin -mlgokit-allocations=%s -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=OTHER

; SHORT: error: mlgokit: allocation table {{.*}}.short: it is cut short
; LONG: error: mlgokit: allocation table {{.*}}.long: it is not as long as it says
; OTHER: error: mlgokit: allocation table {{.*}}: expected a file that `mlgokit tune` wrote, found another
