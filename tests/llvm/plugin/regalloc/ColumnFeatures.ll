; What all columns have alike makes a policy take the first legal one, as the rule does that is named so; the column of
; the live range itself is the last. A name that nothing supplies is said without what stands before it.
; RUN: llc -load %plugin -mlgokit-eviction-policy=:first -O2 -o %t.first %S/../Inputs/pressure.ll
; RUN: %tool policy %t.default regalloc-eviction default:weighed_reads_by_max 1 0
; RUN: llc -load %plugin -mlgokit-eviction-policy=%t.default -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.first %t.same
; RUN: %tool policy %t.least regalloc-eviction least:weighed_reads_by_max 1 0
; RUN: llc -load %plugin -mlgokit-eviction-policy=%t.least -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.first %t.same
; RUN: %tool policy %t.mean regalloc-eviction mean:liverange_size 1 0
; RUN: llc -load %plugin -mlgokit-eviction-policy=%t.mean -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.first %t.same
; RUN: %tool policy %t.most regalloc-eviction most:is_itself 1 0
; RUN: llc -load %plugin -mlgokit-eviction-policy=%t.most -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.first %t.same
; RUN: %tool policy %t.count regalloc-eviction legal_columns 1 0
; RUN: llc -load %plugin -mlgokit-eviction-policy=%t.count -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.first %t.same
; RUN: %tool policy %t.itself regalloc-eviction is_itself 1 0
; RUN: llc -load %plugin -mlgokit-eviction-policy=%t.itself -mlgokit-eviction-log=%t.log -O2 -o %t.other %S/../Inputs/pressure.ll
; RUN: not cmp %t.first %t.other
; RUN: %tool log %t.log index_to_evict | FileCheck %s
; RUN: %tool policy %t.unknown regalloc-eviction mean:nothing 1 0
; RUN: not llc -load %plugin -mlgokit-eviction-policy=%t.unknown -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=UNKNOWN

; CHECK: 32
; UNKNOWN: error: mlgokit: policy {{.*}}.unknown: needs the feature 'nothing'
