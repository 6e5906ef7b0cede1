; The cost estimate decides: of a plain sum of cost features, of a callee that is known by an argument, and of one that
; loads twice. It is LLVM's own, which the log has.
; RUN: %tool policy %t.policy inline-size cost_estimate 100 -320
; RUN: opt -load-pass-plugin=%plugin -passes='default<Oz>' -mlgokit-policy=%t.policy -mlgokit-log=%t.log -S %s | sed -e '/^!/d' -e '/^$/d' -e 's/, !mlgokit.site ![0-9]*//' > %t.logged
; RUN: opt -load-pass-plugin=%plugin -passes='default<Oz>' -mlgokit-policy=%t.policy -S %s | sed '/^$/d' > %t.ll
; RUN: diff %t.logged %t.ll
; RUN: FileCheck %s < %t.ll

; CHECK-LABEL: define i32 @caller
; CHECK-NOT: @cheap
; CHECK: call {{.*}}@dear
; CHECK-NOT: @ask
target triple = "x86_64-pc-linux-gnu"
declare i32 @get(i32)
define i32 @known(i32 %x) minsize optsize {
  %a = add i32 %x, 3
  ret i32 %a
}
define i32 @cheap(i32 %x) minsize optsize {
  %a = call i32 @get(i32 %x)
  ret i32 %a
}
define i32 @dear(ptr %p) minsize optsize {
  %a = load i32, ptr %p
  %b = call i32 @get(i32 %a)
  %c = load i32, ptr %p
  %d = call i32 @get(i32 %c)
  %e = call i32 @get(i32 %d)
  %f = add i32 %b, %e
  ret i32 %f
}
define i32 @ask(ptr %f, i32 %x) minsize optsize {
  %a = call i32 %f(i32 %x)
  ret i32 %a
}
define i32 @caller(ptr %p, i32 %x) minsize optsize {
  %a = call i32 @cheap(i32 %x)
  %b = call i32 @dear(ptr %p)
  %c = call i32 @ask(ptr @known, i32 %a)
  %d = add i32 %b, %c
  ret i32 %d
}
