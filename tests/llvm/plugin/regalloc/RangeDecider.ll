; What nobody decides is LLVM's; a policy of weights is asked once about each live range that may be spilled, and logged.
; RUN: llc -O2 -o %t.plain %S/../Inputs/pressure.ll
; RUN: llc -load %plugin -mlgokit-weight-policy=:default -mlgokit-weight-log=%t.log -O2 -o %t.default %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.default
; RUN: %tool log %t.log log2_factor_default log2_factor log_probability | FileCheck %s --check-prefix=DEFAULT
; RUN: %tool policy %t.equal regalloc-weight li_size 0 0
; RUN: llc -load %plugin -mlgokit-weight-policy=%t.equal -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.same
; RUN: %tool policy %t.twice regalloc-weight li_size 0 1
; RUN: llc -load %plugin -mlgokit-weight-policy=%t.twice -mlgokit-weight-log=%t.one -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool log %t.one log2_factor | FileCheck %s --check-prefix=ONE
; RUN: %tool policy %t.heavy regalloc-weight fine_weight -1 0
; RUN: llc -load %plugin -mlgokit-weight-policy=%t.heavy -mlgokit-weight-log=%t.more -O2 -o %t.other %S/../Inputs/pressure.ll
; RUN: not cmp %t.plain %t.other
; RUN: %tool log %t.more log2_factor | FileCheck %s --check-prefix=BOUND
; RUN: llc -load %plugin -mlgokit-weight-policy=:random -mlgokit-weight-log=%t.any -O2 -o %t.drawn %S/../Inputs/pressure.ll
; RUN: not cmp %t.plain %t.drawn
; RUN: %tool log %t.any log_probability | FileCheck %s --check-prefix=DRAWN
; RUN: not llc -load %plugin -mlgokit-weight-policy=:random -mlgokit-flip-probability=0.1 -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=FLIP
; RUN: not llc -load %plugin -mlgokit-weight-log=%t.log -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=NONE
; RUN: %tool policy %t.order regalloc-priority li_size 0 1
; RUN: not llc -load %plugin -mlgokit-weight-policy=%t.order -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=ORDER
; RUN: not llc -load %plugin -mlgokit-weight-policy=:random -regalloc-enable-priority-advisor=release -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=BOTH

; DEFAULT: busy log2_factor_default=0 log2_factor=0 log_probability=0{{$}}
; ONE: busy log2_factor=1{{$}}
; ONE-NOT: log2_factor={{0|[2-9]}}
; BOUND: busy log2_factor=-8{{$}}
; DRAWN: busy log_probability=-2.772589{{$}}
; FLIP: error: mlgokit: expected no flip probability with a policy for regalloc-weight, found one
; NONE: error: mlgokit: this plugin has no policy inside; name one with MLGOKIT_WEIGHT_POLICY or -mlgokit-weight-policy
; ORDER: error: mlgokit: policy {{.*}}.order: expected the problem regalloc-weight, found 'regalloc-priority'
; BOTH: error: mlgokit: {{.*}}MLGOKIT_WEIGHT_POLICY or -mlgokit-weight-policy
