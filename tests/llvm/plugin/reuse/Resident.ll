; A resident compiler gives the object of a compiler of its own, for each request, and ends with its socket.
; RUN: MLGOKIT_POLICY=:never clang -cc1 -triple x86_64-unknown-linux-gnu -Oz -fpass-plugin=%plugin -emit-obj -o %t.o -x ir %S/../Inputs/calls.ll
; RUN: MLGOKIT_POLICY=:never %tool resident %t.one %t.two -- clang -cc1 -triple x86_64-unknown-linux-gnu -Oz -fpass-plugin=%plugin -emit-obj -o - -x ir %S/../Inputs/calls.ll | FileCheck %s
; RUN: cmp %t.o %t.one
; RUN: cmp %t.o %t.two

; CHECK: exit 0
; CHECK-NEXT: exit 0
