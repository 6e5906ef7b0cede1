; The call of @leaf comes into @caller through two calls of @middle: two ways, so two keys. The key of either is the same
; whether the other one comes too, and in each compilation. The key of the call in @middle does not depend on inlining.
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-log=%t.never -disable-output %s
; RUN: %tool policy %t.policy inline-size callee_defined_calls -1000 500
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -mlgokit-log=%t.both -disable-output %s
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -mlgokit-log=%t.again -disable-output %s
; RUN: cmp %t.both %t.again
; RUN: %tool policy %t.policy inline-size call_stack_arguments -1000 500
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -mlgokit-log=%t.second -disable-output %s
; RUN: for log in never both second; do echo $log; %tool log %t.$log inlining_decision site; done > %t.sites
; RUN: FileCheck %s < %t.sites

; CHECK: never
; CHECK-NEXT: inlining_decision=0 site=[[INNER:[0-9a-f]+]]
; CHECK-NEXT: inlining_decision=0 site=[[ONE:[0-9a-f]+]]
; CHECK-NEXT: inlining_decision=0 site=[[TWO:[0-9a-f]+]]
; CHECK-NEXT: both
; CHECK-NEXT: inlining_decision=0 site=[[INNER]]
; CHECK-NEXT: inlining_decision=1 site=[[ONE]]
; CHECK-NEXT: inlining_decision=1 site=[[TWO]]
; CHECK-NEXT: inlining_decision=0 site=[[LEAF1:[0-9a-f]+]]
; CHECK-NEXT: inlining_decision=0 site=[[LEAF2:[0-9a-f]+]]
; CHECK-NEXT: second
; CHECK-NEXT: inlining_decision=0 site=[[INNER]]
; CHECK-NEXT: inlining_decision=0 site=[[ONE]]
; CHECK-NEXT: inlining_decision=1 site=[[TWO]]
; CHECK-NEXT: inlining_decision=0 site=[[LEAF2]]
target triple = "x86_64-pc-linux-gnu"

@variable = global i32 0
declare i32 @get(i32)
define i32 @leaf(i32 %x) minsize optsize {
  %a = call i32 @get(i32 %x)
  ret i32 %a
}
define i32 @middle(ptr %p) minsize optsize {
  store volatile i32 7, ptr %p
  %a = call i32 @leaf(i32 7)
  ret i32 %a
}
define i32 @caller() minsize optsize {
  %slot = alloca i32
  %a = call i32 @middle(ptr @variable)
  %b = call i32 @middle(ptr %slot)
  %c = add i32 %a, %b
  ret i32 %c
}
