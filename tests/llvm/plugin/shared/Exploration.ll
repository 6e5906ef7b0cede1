; A flip turns a rule round; logarithms of probabilities are those of docs/formats.md.
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-flip-probability=1 -mlgokit-log=%t.one -disable-output %S/../Inputs/calls.ll
; RUN: %tool log %t.one inlining_decision log_probability | FileCheck %s --check-prefix=ONE
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-flip-probability=0.25 -mlgokit-seed=3 -mlgokit-log=%t.some -disable-output %S/../Inputs/calls.ll
; RUN: %tool log %t.some inlining_decision log_probability | FileCheck %s --check-prefix=SOME

; ONE-COUNT-4: module inlining_decision=1 log_probability=0{{$}}
; SOME-DAG: module inlining_decision=0 log_probability=-0.2876821
; SOME-DAG: module inlining_decision=1 log_probability=-1.386294
