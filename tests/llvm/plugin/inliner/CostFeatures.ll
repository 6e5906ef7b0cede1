; The cost estimate decides: of a plain sum of cost features, of a callee that is known by an argument, and of one that
; loads twice. It is LLVM's own, which the log has.
; RUN: %tool policy %t.policy inline-size cost_estimate 100 -320
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -mlgokit-log=%t.log -S %s | sed -e '/^!/d' -e '/^$/d' -e 's/, !mlgokit.site ![0-9]*//' > %t.logged
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -S %s | sed '/^$/d' > %t.ll
; RUN: diff %t.logged %t.ll
; RUN: FileCheck %s < %t.ll

; What the heuristic says follows from the estimate, but not of copies that it knows to be free, of calls that are worth a
; bonus, nor where nothing comes behind a call.
; RUN: opt -passes=inliner-wrapper -S %s | sed -e '/^$/d' > %t.plain
; RUN: opt -load-pass-plugin=%plugin -passes=inliner-wrapper -mlgokit-policy=:default -mlgokit-log=%t.log -S %s | sed -e '/^!/d' -e '/^$/d' -e 's/, !mlgokit.site ![0-9]*//' > %t.echo
; RUN: diff %t.plain %t.echo
; RUN: FileCheck %s --check-prefix=PLAIN < %t.plain

; PLAIN-LABEL: define i32 @others
; PLAIN-NOT: @praised
; PLAIN: call {{.*}}@dear
; PLAIN-LABEL: define void @ends
; PLAIN: call {{.*}}@cheap

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
declare ptr @__memcpy_chk(ptr, ptr, i64, i64)
declare void @fail() noreturn
define void @copies(ptr %p, ptr %q) minsize optsize {
  %a = call ptr @__memcpy_chk(ptr %p, ptr %q, i64 8, i64 8)
  %b = call ptr @__memcpy_chk(ptr %q, ptr %p, i64 8, i64 8)
  ret void
}
define i32 @praised(i32 %x) minsize optsize {
  %a = call i32 @get(i32 %x) "call-threshold-bonus"="100"
  %b = call i32 @get(i32 %a)
  %c = call i32 @get(i32 %b)
  ret i32 %c
}
define i32 @others(ptr %p, i32 %x) minsize optsize {
  call void @copies(ptr %p, ptr %p)
  %a = call i32 @praised(i32 %x)
  %b = call i32 @dear(ptr %p)
  %c = add i32 %a, %b
  ret i32 %c
}
define void @ends(i32 %x) minsize optsize {
  %a = call i32 @cheap(i32 %x)
  call void @fail()
  unreachable
}
