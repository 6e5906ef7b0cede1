; A policy is for one problem and for features that there are; a log that cannot be written fails the compilation.
; RUN: %tool policy %t.other regalloc-priority weight 1 0
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.other -disable-output %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=PROBLEM
; RUN: %tool policy %t.feature inline-size moon_phase 1 0
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.feature -disable-output %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=FEATURE
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-log=%t.none/log -disable-output %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=LOG
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>,default<%Oz>' -mlgokit-policy=:never -mlgokit-log=%t.log -disable-output %S/../Inputs/calls.ll
; RUN: %tool log %t.log inlining_decision | FileCheck %s --check-prefix=TWICE
; RUN: %tool log %t.log.1 inlining_decision | FileCheck %s --check-prefix=TWICE

; PROBLEM: policy {{.*}}.other: expected the problem inline-size, found 'regalloc-priority'; give the policy to its own advisor
; FEATURE: policy {{.*}}.feature: needs the feature 'moon_phase', which LLVM {{.*}} and this plugin do not supply
; LOG: training log {{.*}}.none/log: cannot be written: No such file or directory
; TWICE-COUNT-4: inlining_decision=0
