; Where remarks are wanted, LLVM's advisor writes its own, with its features; what is decided and logged is the same.
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:always -mlgokit-log=%t.log -pass-remarks-output=%t.yaml -S -o %t.remarks.ll %S/../Inputs/calls.ll
; RUN: FileCheck %s < %t.yaml
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:always -mlgokit-log=%t.other -S -o %t.ll %S/../Inputs/calls.ll
; RUN: cmp %t.log %t.other
; RUN: diff %t.remarks.ll %t.ll

; CHECK: Pass: {{ *}}inline-ml
; CHECK-NEXT: Name: {{ *}}InliningSuccess
; CHECK: node_count:
