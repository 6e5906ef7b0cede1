; A log tells what a live range is like as it asks; a policy may go by it, and what nobody supplies is named.
; RUN: llc -load %plugin -mlgokit-priority-policy=:default -mlgokit-priority-log=%t.log -O2 -o %t.default %S/../Inputs/pressure.ll
; RUN: %tool log %t.log is_local instructions definitions values segments class_registers position heuristic_priority calls_across registers priority_default > %t.rows
; RUN: FileCheck %s < %t.rows
; RUN: %tool policy %t.policy regalloc-priority heuristic_priority 0.1 0
; RUN: llc -load %plugin -mlgokit-priority-policy=%t.policy -mlgokit-priority-log=%t.one -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: %tool policy %t.weight regalloc-priority fine_weight 0.1 0
; RUN: llc -load %plugin -mlgokit-priority-policy=%t.weight -O2 -o %t.other %S/../Inputs/pressure.ll
; RUN: not cmp %t.default %t.other
; RUN: %tool policy %t.unknown regalloc-priority nothing 1 0
; RUN: not llc -load %plugin -mlgokit-priority-policy=%t.unknown -O2 -o %t.s %S/../Inputs/pressure.ll 2>&1 | FileCheck %s --check-prefix=UNKNOWN
; RUN: llc -load %plugin -mlgokit-priority-policy=:default -mlgokit-priority-log=%t.empty -O2 -o %t.e %s
; RUN: %tool log %t.empty segments position calls_across > %t.rows
; RUN: FileCheck %s --check-prefix=EMPTY < %t.rows

; EMPTY: empty segments=0 position=0 calls_across=0{{$}}
; EMPTY: empty {{.*}} calls_across=1{{$}}
; CHECK: busy is_local={{[01]}} instructions={{[1-9][0-9]*}} definitions={{[1-9][0-9]*}} values={{[1-9][0-9]*}} segments={{[1-9][0-9]*}} class_registers={{[1-9][0-9]*}} position={{[0-9.]+}} heuristic_priority={{[1-9].*}} calls_across={{[0-9]+}} registers={{[1-9][0-9]*}} priority_default={{[1-9]}}
; CHECK: calls_across=1
; UNKNOWN: error: mlgokit: policy {{.*}}.unknown: needs the feature 'nothing'
target triple = "x86_64-unknown-linux-gnu"
declare void @use(i64, i64)

define void @empty(i64 %some, ptr %place) minsize optsize nounwind {
entry:
  %any = freeze i64 poison
  %zero = icmp eq i64 %some, 0
  br i1 %zero, label %then, label %end
then:
  call void @use(i64 %any, i64 %some)
  br label %end
end:
  %either = phi i64 [ %any, %entry ], [ %some, %then ]
  %sum = add i64 %either, %any
  store i64 %any, ptr %place
  call void @use(i64 %sum, i64 %either)
  ret void
}
