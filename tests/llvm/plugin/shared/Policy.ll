; The effect is 100 log(1 + callee_instructions) - 200 bytes: positive, so against inlining, from 7 instructions on.
; RUN: %tool policy %t.policy inline-size callee_instructions 100 -200
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -S %S/../Inputs/calls.ll | FileCheck %s
; RUN: head -c -3 %t.policy > %t.short
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.short -S %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=SHORT

; CHECK-LABEL: define i32 @first
; CHECK-NOT: @small
; CHECK: call {{.*}}@large
; SHORT: error: mlgokit: policy {{.*}}.short: 
