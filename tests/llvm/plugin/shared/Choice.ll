; A rule that is flipped as often as not decides with a probability of one half, whatever it says.
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-flip-probability=0.5 -mlgokit-log=%t.log -disable-output %S/../Inputs/calls.ll
; RUN: %tool log %t.log log_probability | FileCheck %s

; CHECK: module log_probability=-0.6931472
; CHECK-NOT: module log_probability={{[^-]|-[^0]}}
