; What is executed in one call is estimated by LLVM's frequencies: the instructions of straight code, more in a loop.
; RUN: %tool list %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -filetype=obj -o %t.o %s
; RUN: for each in straight loop; do %tool toggles %t.trials %t.functions $each && MLGOKIT_TRIALS=%t.trials MLGOKIT_TRIED=%t.tried llc -load %plugin -O2 -filetype=obj -o %t.o %s && %tool tried %t.tried executed; done | FileCheck %s

; CHECK: score={{.*}} cost=2e-09
; CHECK: score={{.*}} cost={{[1-9][0-9.]*}}e-0{{[78]}}
target triple = "x86_64-unknown-linux-gnu"
define i32 @straight(i32 %a) {
  %b = add i32 %a, 7
  ret i32 %b
}
define void @loop(ptr %p, i64 %n) {
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %at = getelementptr i32, ptr %p, i64 %i
  store volatile i32 1, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %exit
exit:
  ret void
}
