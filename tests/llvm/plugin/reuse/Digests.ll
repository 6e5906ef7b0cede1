; What is known is read whole, or the compilation ends with a sentence.
; RUN: not env MLGOKIT_DECIDED=%t.decided MLGOKIT_KNOWN_DECISIONS=%t.none opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:always -disable-output %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=NONE
; RUN: printf 0123456789abcdef0 > %t.long
; RUN: not env MLGOKIT_DECIDED=%t.decided MLGOKIT_KNOWN_DECISIONS=%t.long opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:always -disable-output %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=LONG
; RUN: printf 0123456789abcdef > %t.known
; RUN: MLGOKIT_DECIDED=%t.decided MLGOKIT_KNOWN_DECISIONS=%t.known opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:always -disable-output %S/../Inputs/calls.ll

; NONE: error: mlgokit: known decisions {{.*}}.none: No such file
; LONG: error: mlgokit: known decisions {{.*}}.long: it is cut short
