; The bytes that a trial counts are those of the symbol in the object, also where a branch needs a longer form.
; RUN: %tool trials %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -filetype=obj -o %t.o %S/../Inputs/pressure.ll
; RUN: %tool trials %t.trials %t.functions busy code 0 1
; RUN: MLGOKIT_TRIALS=%t.trials MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -filetype=obj -o %t.o %S/../Inputs/pressure.ll
; RUN: (llvm-nm -S --radix=d %t.o; %tool tried %t.tried code) | FileCheck %s

; CHECK: {{^[0-9]+ 0*}}[[BYTES:[1-9][0-9]+]] T busy
; CHECK: busy
; CHECK-NEXT: score=[[BYTES]]{{[. ]}}
