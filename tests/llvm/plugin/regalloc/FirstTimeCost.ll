; A policy of weights says what the first use of a callee-saved register costs, in the functions that it decides about;
; a user's word, and LLVM's where the policy is for another target, count more.
; RUN: llc -O2 -o %t.plain %s
; RUN: llc -O2 -regalloc-csr-first-time-cost=16384 -o %t.option %s
; RUN: %tool priced %t.priced 16384
; RUN: llc -load %plugin -mlgokit-weight-policy=%t.priced -O2 -o %t.same %s
; RUN: cmp %t.option %t.same
; RUN: not cmp %t.plain %t.same
; RUN: llc -O2 -regalloc-csr-first-time-cost=1 -o %t.low %s
; RUN: llc -load %plugin -mlgokit-weight-policy=%t.priced -O2 -regalloc-csr-first-time-cost=1 -o %t.user %s
; RUN: cmp %t.low %t.user
; RUN: not cmp %t.low %t.same
; RUN: llc -load %plugin -mlgokit-weight-policy=:default -O2 -o %t.default %s
; RUN: cmp %t.plain %t.default
; RUN[aarch64]: llc -mtriple=aarch64-linux-gnu -O2 -o %t.other %s
; RUN[aarch64]: llc -mtriple=aarch64-linux-gnu -load %plugin -mlgokit-weight-policy=%t.priced -O2 -o %t.elsewhere %s
; RUN[aarch64]: cmp %t.other %t.elsewhere
; RUN: %tool priced %t.gated 16384 gated
; RUN: llc -load %plugin -mlgokit-weight-policy=%t.gated -O2 -o - %s | FileCheck %s
; RUN: %tool policy %t.free regalloc-weight li_size 0 0
; RUN: llc -load %plugin -mlgokit-weight-policy=%t.free -O2 -o %t.none %s
; RUN: cmp %t.plain %t.none

; CHECK-LABEL: first:
; CHECK-NOT: pushq
; CHECK: Spill
; CHECK-LABEL: small:
; CHECK: pushq %rbx
; CHECK-LABEL: last:
; CHECK-NOT: pushq
; CHECK: Spill

target triple = "x86_64-unknown-linux-gnu"

declare i64 @rare(i64)

define i64 @first(i64 %a, i64 %b) {
entry:
  %seldom = icmp eq i64 %a, 7
  br i1 %seldom, label %cold, label %done, !prof !0
cold:
  %r = call i64 @rare(i64 %b)
  br label %done
done:
  %s = phi i64 [ %r, %cold ], [ 0, %entry ]
  %t = add i64 %s, %a
  %u = add i64 %t, %b
  ret i64 %u
}

define i64 @small(i64 %a, i64 %b) minsize optsize {
entry:
  %seldom = icmp eq i64 %a, 8
  br i1 %seldom, label %cold, label %done, !prof !0
cold:
  %r = call i64 @rare(i64 %b)
  br label %done
done:
  %s = phi i64 [ %r, %cold ], [ 0, %entry ]
  %t = add i64 %s, %a
  %u = add i64 %t, %b
  ret i64 %u
}

define i64 @last(i64 %a, i64 %b) {
entry:
  %seldom = icmp eq i64 %a, 9
  br i1 %seldom, label %cold, label %done, !prof !0
cold:
  %r = call i64 @rare(i64 %b)
  br label %done
done:
  %s = phi i64 [ %r, %cold ], [ 0, %entry ]
  %t = add i64 %s, %a
  %u = add i64 %t, %b
  ret i64 %u
}

!0 = !{!"branch_weights", i32 1, i32 1000}
