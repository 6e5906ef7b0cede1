; A copy tells the costs of LLVM's own remark, ends before the code is printed, and writes to no file of the compiler; one
; that takes too long says nothing.
; RUN: llc -O2 -pass-remarks-output=%t.remarks -pass-remarks-filter=regalloc -o %t.plain %S/../Inputs/pressure.ll
; RUN: %tool trials %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool trials %t.trials %t.functions busy spill 0 1
; RUN: MLGOKIT_TRIALS=%t.trials MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.s
; RUN: (%tool remarks %t.remarks; %tool tried %t.tried) | FileCheck %s

; CHECK: busy cost=[[COST:[1-9][0-9.]+]]
; CHECK: busy key=
; CHECK-NEXT: score=[[COST]] cost=[[COST]]
