; A policy chooses the legal column of the largest logit; flips leave it; a policy needs a feature of each column.
; RUN: %tool policy %t.policy regalloc-eviction weighed_reads_by_max 1 0
; RUN: llc -load %plugin -mlgokit-eviction-policy=%t.policy -mlgokit-eviction-log=%t.log -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool evictions %t.log weighed_reads_by_max | FileCheck %s
; RUN: llc -load %plugin -mlgokit-eviction-policy=%t.policy -mlgokit-flip-probability=0.5 -mlgokit-eviction-log=%t.flip -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: %tool evictions %t.flip weighed_reads_by_max | FileCheck %s --check-prefix=FLIP
; RUN: llc -load %plugin -mlgokit-eviction-policy=:random -mlgokit-seed=1 -mlgokit-eviction-log=%t.one -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: llc -load %plugin -mlgokit-eviction-policy=:random -mlgokit-seed=2 -mlgokit-eviction-log=%t.two -O2 -o %t.s %S/../Inputs/pressure.ll
; RUN: not cmp %t.one %t.two
; RUN: sed 's/mask\\": \\"mask/mask\\": \\"musk/' %t.policy > %t.mask
; RUN: not llc -load %plugin -mlgokit-eviction-policy=%t.mask -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=MASK

; CHECK: largest
; CHECK-NOT: another
; FLIP-DAG: largest
; FLIP-DAG: another
; MASK: error: mlgokit: policy {{.*}}.mask: expected the mask 'mask', found 'musk'
