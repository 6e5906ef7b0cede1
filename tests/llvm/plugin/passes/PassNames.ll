; Passes are known by their arguments, which LLVM 19 does not ask by; those that have none by their titles.
; RUN: %tool list %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool toggles %t.trials %t.functions busy block-placement early-machinelicm x86-isel "X86 Atom pad short functions" "Machine code sinking"
; RUN: MLGOKIT_TRIALS=%t.trials MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -filetype=obj -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool tried %t.tried code | FileCheck %s

; CHECK: score={{.*}} overrides=0
; CHECK-NEXT: score={{.*}} overrides=1
; CHECK-NEXT: score={{.*}} overrides={{[12]}}
; CHECK-NEXT: score={{.*}} overrides={{[123]}}
; CHECK-NEXT: score={{.*}} overrides={{[1234]}}
; CHECK-NEXT: score={{.*}} overrides={{[0123]$}}
