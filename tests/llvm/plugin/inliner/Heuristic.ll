; The heuristic that is asked is LLVM's own: echoed, and where a closed gate leaves a call to it.
; RUN: opt -passes='default<%Oz>' -S %S/../Inputs/calls.ll -o %t.plain
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:default -S %S/../Inputs/calls.ll -o %t.echo
; RUN: diff %t.plain %t.echo
; RUN: FileCheck %s < %t.echo
; CHECK-LABEL: define i32 @first
