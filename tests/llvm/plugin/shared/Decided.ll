; The digest of what was decided is the MD5 of a byte for each answer, in their order.
; RUN: MLGOKIT_DECIDED=%t.always opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:always -disable-output %S/../Inputs/calls.ll
; RUN: printf '\001\001\001\001' | md5sum | cut -c 1-32 > %t.md5
; RUN: cut -d ' ' -f 2 %t.always | diff - %t.md5
; RUN: MLGOKIT_DECIDED=%t.never opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -disable-output %S/../Inputs/calls.ll
; RUN: FileCheck %s < %t.never

; CHECK: {{^g [0-9a-f]+$}}
