; The effect of shared/Policy.ll turned round: -100 log(1 + callee_instructions) + 200 bytes, for inlining from 7 instructions on.
; RUN: %tool policy %t.policy inline-size callee_instructions -100 200
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -S %S/../Inputs/calls.ll | FileCheck %s

; CHECK-LABEL: define i32 @first
; CHECK: call {{.*}}@small
; CHECK-NOT: call {{.*}}@large
; CHECK: ret
