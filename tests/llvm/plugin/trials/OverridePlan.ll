; What a trial overrode, again, gives what the trial gave: the same questions, overrides and costs.
; RUN: %tool trials %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool trials %t.trials %t.functions busy spill 0.3 1
; RUN: MLGOKIT_TRIALS=%t.trials MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool trials %t.again %t.tried busy spill 0 1
; RUN: MLGOKIT_TRIALS=%t.again MLGOKIT_TRIED=%t.twice llc -load %plugin -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: (%tool tried %t.tried; %tool tried %t.twice) | FileCheck %s

; CHECK: busy
; CHECK-NEXT: score=[[SCORE:[0-9.e+]+]] {{.*}} evictions=[[E:[0-9]+]] priorities=[[P:[0-9]+]] overrides=[[MADE:[1-9][0-9]+]]
; CHECK-NEXT: busy
; CHECK-NEXT: score=[[SCORE]] {{.*}} evictions=[[E]] priorities=[[P]] overrides=[[MADE]]
