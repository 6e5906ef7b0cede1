; A priority that a plan overrides is that of another live range, or near to what was drawn; all that a trial gave is given
; again by the overrides that it told.
; RUN: %tool trials %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool trials %t.trials %t.functions busy spill 0.9 1
; RUN: MLGOKIT_TRIALS=%t.trials MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool allocations %t.table %t.tried
; RUN: llc -load %plugin -mlgokit-allocations=%t.table -pass-remarks-output=%t.remarks -pass-remarks-filter=regalloc -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: (%tool tried %t.tried; %tool remarks %t.remarks) | FileCheck %s

; CHECK: busy key=
; CHECK-NEXT: score=[[COST:[0-9.e+]+]] {{.*}}overrides={{[1-9]}}
; CHECK: busy cost=[[COST]]
