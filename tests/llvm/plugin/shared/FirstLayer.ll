; The effect of shared/Policy.ll, by one layer alone: what is decided of the calls before does not stay in its sums.
; RUN: %tool policy %t.policy inline-size callee_instructions 100 -160
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -S %S/../Inputs/calls.ll | FileCheck %s
; RUN: %tool policy %t.other inline-size callee_instructions -100 160
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.other -S %S/../Inputs/calls.ll | FileCheck %s --check-prefix=OTHER

; CHECK-LABEL: define i32 @first
; CHECK-NOT: @small
; CHECK: call {{.*}}@large
; OTHER-LABEL: define i32 @first
; OTHER: call {{.*}}@small
; OTHER-NOT: call {{.*}}@large
; OTHER: ret
