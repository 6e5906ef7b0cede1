; Trials follow one another, each from the best before; the compilation itself gives what it gives without. Without
; trials the functions are listed; a file that is none is an error, and so is no room for results.
; RUN: llc -O2 -o %t.plain %S/../Inputs/pressure.ll
; RUN: %tool trials %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -o %t.listed %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.listed
; RUN: %tool tried %t.functions | FileCheck %s --check-prefix=LISTED
; RUN: %tool trials %t.trials %t.functions busy spill 0.1 1 2 1
; RUN: MLGOKIT_TRIALS=%t.trials MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -o %t.tried.s %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.tried.s
; RUN: (%tool tried %t.tried; echo end) | FileCheck %s
; RUN: not env MLGOKIT_TRIALS=%s MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=OTHER

; RUN: not env MLGOKIT_TRIALS=%t.none llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=ROOM
; RUN: not env MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=/dev/full llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=ROOM
; LISTED: busy key=
; LISTED-NOT: score
; CHECK: busy key=
; CHECK-NEXT: score=[[FIRST:[0-9.e+]+]] {{.*}}overrides=[[MADE:[0-9]+]]
; CHECK-NOT: score=[[FIRST]] {{.*}}overrides=[[MADE]]
; CHECK: end
; OTHER: error: mlgokit: MLGOKIT_TRIALS: expected a readable file with trials, found another:
; ROOM: error: mlgokit: trials: expected room for their results, found none
