; The effect of leaving a pass out is 100 log(1 + occurrence) - 200 bytes, so whatever asks is left out; where the policy
; sees none, or the function is not compiled for size, the code is LLVM's. An entry in a table keeps the policy out, and
; what a log says was left out is what was. A policy with a feature for some passes decides about these. Damage is said.
; Frame pointers are a question where there is an unwind table. A function from which a table takes minsize is still one
; for policies about size.
; RUN: llc -O2 -o %t.plain %S/../Inputs/pressure.ll
; RUN: %tool policy %t.policy pass-selection occurrence 100 -200
; RUN: llc -load %plugin -mlgokit-pass-policy=%t.policy -mlgokit-pass-log=%t.log -O2 -o %t.other %S/../Inputs/pressure.ll
; RUN: not cmp %t.plain %t.other
; RUN: llc -load %plugin -mlgokit-pass-policy=%t.policy -O2 -o %t.again %S/../Inputs/pressure.ll
; RUN: cmp %t.other %t.again
; RUN: %tool log %t.log pass:machine-cse pass:machine-sink passes_left_out left_out_default left_out log_probability | FileCheck %s
; RUN: %tool policy %t.two pass-selection pass:machine-cse 0 -200
; RUN: llc -load %plugin -mlgokit-pass-policy=%t.two -mlgokit-pass-log=%t.some -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: %tool log %t.some pass:machine-cse left_out | FileCheck %s --check-prefix=SOME
; RUN: %tool policy %t.no pass-selection pass:block-placement 0 200
; RUN: llc -load %plugin -mlgokit-pass-policy=%t.no -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.same
; RUN: llc -load %plugin -mlgokit-pass-policy=:default -mlgokit-pass-log=%t.default -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.same
; RUN: %tool log %t.default left_out | FileCheck %s --check-prefix=DEFAULT
; RUN: llc -load %plugin -mlgokit-pass-policy=:default -mlgokit-flip-probability=1 -O2 -o %t.drawn %S/../Inputs/pressure.ll
; RUN: cmp %t.other %t.drawn
; RUN: sed 's/minsize optsize//' %S/../Inputs/pressure.ll > %t.fast.ll
; RUN: llc -O2 -o %t.fast %t.fast.ll
; RUN: llc -load %plugin -mlgokit-pass-policy=%t.policy -O2 -o %t.same %t.fast.ll
; RUN: cmp %t.fast %t.same
; RUN: llc -load %plugin -mlgokit-pass-policy=%t.policy -mlgokit-any-level=1 -O2 -o %t.same %t.fast.ll
; RUN: not cmp %t.fast %t.same
; RUN: %tool list %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool passes %t.yes %t.functions none
; RUN: llc -load %plugin -mlgokit-passes=%t.yes -mlgokit-pass-policy=%t.policy -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.other %t.same
; RUN: %tool passes %t.kept %t.functions busy
; RUN: llc -load %plugin -mlgokit-passes=%t.kept -mlgokit-pass-policy=%t.policy -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.same
; RUN: %tool log %t.log pass:frame-pointer | FileCheck %s --check-prefix=NO-ROWS
; RUN: sed 's/nounwind/nounwind uwtable/' %S/../Inputs/pressure.ll > %t.unwinds.ll
; RUN: llc -load %plugin -mlgokit-pass-policy=%t.policy -mlgokit-pass-log=%t.log -O2 -o %t.s %t.unwinds.ll
; RUN: %tool log %t.log pass:frame-pointer left_out | FileCheck %s --check-prefix=ROWS
; RUN: %tool passes %t.least %t.functions busy minsize
; RUN: llc -load %plugin -mlgokit-passes=%t.least -mlgokit-weight-policy=:default -mlgokit-weight-log=%t.weights -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool log %t.weights is_minsize | FileCheck %s --check-prefix=STILL
; RUN: %tool policy %t.unknown pass-selection no_such_feature 1 0
; RUN: not llc -load %plugin -mlgokit-pass-policy=%t.unknown -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=UNKNOWN

; CHECK: busy pass:machine-cse=1 pass:machine-sink=0 passes_left_out=[[#BEFORE:]] left_out_default=0 left_out=1 log_probability=0{{$}}
; CHECK-NEXT: busy pass:machine-cse=0 pass:machine-sink=1 passes_left_out=[[#BEFORE+1]] left_out_default=0 left_out=1
; SOME: pass:machine-cse=0 left_out=0
; SOME: pass:machine-cse=1 left_out=1
; SOME-NOT: pass:machine-cse=0 left_out=1
; DEFAULT: left_out=0
; DEFAULT-NOT: left_out=1
; UNKNOWN: error: mlgokit: policy {{.*}}.unknown: needs the feature 'no_such_feature'
; NO-ROWS-NOT: pass:frame-pointer=1
; ROWS: pass:frame-pointer=1 left_out=1
; STILL: is_minsize=1
; STILL-NOT: is_minsize=0
