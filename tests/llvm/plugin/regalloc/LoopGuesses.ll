; Where a loop is guessed to run much less often than its function, and no profile says so, a policy that says what
; callee-saved registers cost stands aside: the function is as LLVM makes it.
; RUN: llc -O2 -regalloc-csr-first-time-cost=16384 -o - %s | FileCheck %s --check-prefix=OPTION
; RUN: %tool priced %t.priced 16384
; RUN: llc -load %plugin -mlgokit-weight-policy=%t.priced -O2 -o - %s | FileCheck %s
; RUN: llc -load %plugin -mlgokit-weight-policy=%t.priced -mlgokit-weight-log=%t.log -O2 -o - %s | FileCheck %s

; OPTION-LABEL: guessed:
; OPTION-NOT: pushq %rbx
; OPTION: Spill

; CHECK-LABEL: guessed:
; CHECK: pushq %rbx
; CHECK-LABEL: counted:
; CHECK-NOT: pushq %rbx
; CHECK: Spill
; CHECK-LABEL: straight:
; CHECK-NOT: pushq %rbx
; CHECK: Spill

target triple = "x86_64-unknown-linux-gnu"

declare i64 @rare(i64)

define i64 @guessed(i64 %a, i64 %b) {
entry:
  %seldom = icmp eq i64 %a, 7
  br i1 %seldom, label %loop, label %done, !prof !0
loop:
  %r = call i64 @rare(i64 7)
  %again = icmp ne i64 %r, 0
  br i1 %again, label %loop, label %done
done:
  %s = phi i64 [ %r, %loop ], [ 0, %entry ]
  %t = add i64 %s, %b
  ret i64 %t
}

define i64 @counted(i64 %a, i64 %b) !prof !1 {
entry:
  %seldom = icmp eq i64 %a, 7
  br i1 %seldom, label %loop, label %done, !prof !0
loop:
  %r = call i64 @rare(i64 7)
  %again = icmp ne i64 %r, 0
  br i1 %again, label %loop, label %done
done:
  %s = phi i64 [ %r, %loop ], [ 0, %entry ]
  %t = add i64 %s, %b
  ret i64 %t
}

define i64 @straight(i64 %a, i64 %b) {
entry:
  %seldom = icmp eq i64 %a, 7
  br i1 %seldom, label %once, label %done, !prof !0
once:
  %r = call i64 @rare(i64 7)
  br label %done
done:
  %s = phi i64 [ %r, %once ], [ 0, %entry ]
  %t = add i64 %s, %b
  ret i64 %t
}

!0 = !{!"branch_weights", i32 1, i32 1000}
!1 = !{!"function_entry_count", i64 100}
