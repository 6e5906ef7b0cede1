; The last observation of a function has LLVM's score of its allocation, in the logs of all problems; the others have 0.
; RUN: llc -load %plugin -mlgokit-eviction-policy=:default -mlgokit-eviction-log=%t.evictions -mlgokit-priority-policy=:default -mlgokit-priority-log=%t.priorities -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool log %t.evictions reward | uniq | FileCheck %s
; RUN: (%tool log %t.evictions reward; %tool log %t.priorities reward) | grep -v 'reward=0$' | uniq | count 1
; RUN: llc -O2 -o %t.plain %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.s

; CHECK: busy reward=0{{$}}
; CHECK-NEXT: busy reward={{[1-9]}}
; CHECK-NOT: busy
