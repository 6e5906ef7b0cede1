; LLVM's own priorities give LLVM's code; a policy's and drawn ones are logged beside LLVM's, which stay exact.
; RUN: llc -O2 -o %t.plain %S/../Inputs/pressure.ll
; RUN: llc -load %plugin -mlgokit-priority-policy=:default -mlgokit-priority-log=%t.log -O2 -o %t.default %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.default
; RUN: %tool log %t.log stage priority_default log_probability | FileCheck %s --check-prefix=DEFAULT
; RUN: %tool policy %t.policy regalloc-priority li_size 0 1
; RUN: llc -load %plugin -mlgokit-priority-policy=%t.policy -mlgokit-priority-log=%t.one -O2 -o %t.other %S/../Inputs/pressure.ll
; RUN: not cmp %t.plain %t.other
; RUN: %tool log %t.one priority | FileCheck %s --check-prefix=ONE
; RUN: not llc -load %plugin -mlgokit-priority-policy=:random -mlgokit-flip-probability=0.1 -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=FLIP

; DEFAULT: busy stage=1 priority_default={{[0-9]+}} log_probability=0{{$}}
; ONE: busy priority=1.140851e+09
; ONE-NOT: priority={{0|1.[02-9]}}
; FLIP: error: mlgokit: expected no flip probability with a policy for regalloc-priority, found one
