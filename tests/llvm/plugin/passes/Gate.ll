; A gate that lets everything run gives LLVM's code. Trials toggle passes one after the other, each from the best before,
; and tell the bytes of the symbol; a table with what was left out gives these bytes again, in its function alone, and in
; both of two compilations. The compilation with the trials gives what it gives without; damage is said.
; RUN: llc -O2 -filetype=obj -o %t.plain %S/../Inputs/pressure.ll
; RUN: %tool list %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -filetype=obj -o %t.listed %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.listed
; RUN: %tool tried %t.functions | FileCheck %s --check-prefix=LISTED
; RUN: %tool toggles %t.trials %t.functions busy machine-scheduler machine-sink no-such-pass
; RUN: MLGOKIT_TRIALS=%t.trials MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -filetype=obj -o %t.trying %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.trying
; RUN: (llvm-nm -S --radix=d %t.plain; %tool tried %t.tried code) | FileCheck %s
; RUN: %tool passes %t.yes %t.functions none
; RUN: llc -load %plugin -mlgokit-passes=%t.yes -O2 -filetype=obj -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.same
; RUN: %tool passes %t.table %t.functions busy machine-scheduler
; RUN: %tool toggles %t.one %t.functions busy machine-scheduler
; RUN: MLGOKIT_TRIALS=%t.one MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -filetype=obj -o %t.trying %S/../Inputs/pressure.ll
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -filetype=obj -o %t.other %S/../Inputs/pressure.ll
; RUN: not cmp %t.plain %t.other
; RUN: (llvm-nm -S --radix=d %t.other; %tool tried %t.tried code) | FileCheck %s --check-prefix=LEFT
; RUN: sed s/busy/idle/ %S/../Inputs/pressure.ll > %t.idle.ll
; RUN: llc -O2 -filetype=obj -o %t.plain %t.idle.ll
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -filetype=obj -o %t.other %t.idle.ll
; RUN: cmp %t.plain %t.other
; RUN: head -c -5 %t.table > %t.short
; RUN: not llc -load %plugin -mlgokit-passes=%t.short -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=SHORT

; LISTED: busy key=[[KEY:[0-9a-f]+]] passes
; LISTED: busy key=
; LISTED-NOT: score
; CHECK: {{^[0-9]+ 0*}}[[BYTES:[1-9][0-9]+]] T busy
; CHECK: busy key={{.*}} passes
; CHECK-NEXT: score=[[BYTES]]{{[. ].*}} passes={{[1-9][0-9]+}} overrides=0
; CHECK-NEXT: score={{.*}} overrides=1
; CHECK-NEXT: score={{.*}} overrides={{[012]}}
; CHECK-NEXT: score={{.*}} overrides={{[012]}}
; LEFT: {{^[0-9]+ 0*}}[[BYTES:[1-9][0-9]+]] T busy
; LEFT: overrides=0
; LEFT-NEXT: score=[[BYTES]]{{[. ].*}} overrides=1
; SHORT: error: mlgokit: pass table {{.*}}.short: it is cut short
