; Behind the last pass of the optimizer, the list has the entries that the profile counted of each function, and its
; direct calls: those of a block by its part of the entries, calls of intrinsics not. A function that was inlined has
; fewer entries left. Without a profile there are none.
; RUN: MLGOKIT_POLICY=:never MLGOKIT_ANY_LEVEL=1 MLGOKIT_CHANGED=%t.list opt -load-pass-plugin=%plugin -passes='default<O2>' -disable-output %s
; RUN: FileCheck %s < %t.list
; RUN: MLGOKIT_POLICY=:always MLGOKIT_ANY_LEVEL=1 MLGOKIT_CHANGED=%t.inlined opt -load-pass-plugin=%plugin -passes='default<O2>' -disable-output %s
; RUN: FileCheck %s --check-prefix=INLINED < %t.inlined

; CHECK: entries 400 callee
; CHECK: entries 100 caller
; CHECK-NEXT: calls {{74|75}} callee
; CHECK-NOT: entries {{.*}} unprofiled
; INLINED: entries {{32[56]}} callee
; INLINED: entries 100 caller
; INLINED-NOT: calls {{.*}} callee
target triple = "x86_64-unknown-linux-gnu"
declare void @effect(i32)
define void @callee(i32 %a) !prof !0 {
  call void @effect(i32 %a)
  call void @effect(i32 7)
  ret void
}
define void @caller(i32 %a) !prof !1 {
entry:
  %some = icmp sgt i32 %a, 9
  br i1 %some, label %often, label %exit, !prof !2
often:
  call void @callee(i32 %a)
  br label %exit
exit:
  ret void
}
define void @unprofiled(i32 %a) {
  call void @effect(i32 %a)
  ret void
}
!0 = !{!"function_entry_count", i64 400}
!1 = !{!"function_entry_count", i64 100}
!2 = !{!"branch_weights", i32 3, i32 1}
