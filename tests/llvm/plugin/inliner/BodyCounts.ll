; Calls are inlined as long as the caller has fewer than 7 instructions, with a log and without one.
; RUN: %tool policy %t.policy inline-size caller_instructions 100 -200
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -mlgokit-log=%t.log -S %s | sed -e '/^!/d' -e '/^$/d' -e 's/, !mlgokit.site ![0-9]*//' > %t.logged
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -S %s | sed '/^$/d' > %t.ll
; RUN: diff %t.logged %t.ll
; RUN: FileCheck %s < %t.ll
; RUN: %tool log %t.log caller_instructions inlining_decision | FileCheck %s --check-prefix=LOG

; CHECK-LABEL: define i32 @caller
; CHECK: call {{.*}}@get
; CHECK: call {{.*}}@part
; CHECK: call {{.*}}@part
; LOG: caller_instructions=4 inlining_decision=1
; LOG-NEXT: caller_instructions=10 inlining_decision=0
; LOG-NEXT: caller_instructions=10 inlining_decision=0
target triple = "x86_64-pc-linux-gnu"

declare i32 @get(i32)
define i32 @part(i32 %x) minsize optsize {
  %a = call i32 @get(i32 %x)
  %b = call i32 @get(i32 %a)
  %c = call i32 @get(i32 %b)
  %d = call i32 @get(i32 %c)
  %e = call i32 @get(i32 %d)
  %f = call i32 @get(i32 %e)
  %g = call i32 @get(i32 %f)
  ret i32 %g
}
define i32 @caller(i32 %x) minsize optsize {
  %a = call i32 @part(i32 %x)
  %b = call i32 @part(i32 %a)
  %c = call i32 @part(i32 %b)
  ret i32 %c
}
