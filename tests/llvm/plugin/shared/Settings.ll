; An option goes before its variable; a number that is none, or out of range, is said by the names of both.
; RUN: MLGOKIT_POLICY=:always opt -load-pass-plugin=%plugin -passes='default<%Oz>' -S %S/../Inputs/calls.ll | FileCheck %s --check-prefix=ALWAYS
; RUN: MLGOKIT_POLICY=:always opt -load-pass-plugin=%plugin -mlgokit-policy=:never -passes='default<%Oz>' -S %S/../Inputs/calls.ll | FileCheck %s --check-prefix=NEVER
; RUN: MLGOKIT_POLICY=:never MLGOKIT_SEED=-1 not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -S %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=SEED
; RUN: MLGOKIT_POLICY=:never not opt -load-pass-plugin=%plugin -mlgokit-temperature=warm -passes='default<%Oz>' -S %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=TEMPERATURE
; RUN: MLGOKIT_POLICY=:never MLGOKIT_FLIP_PROBABILITY=1.5 not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -S %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=FLIP
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-log=%t.log -S %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=NONE

; ALWAYS-NOT: call {{.*}}@small
; NEVER: call {{.*}}@small
; SEED: -mlgokit-seed or MLGOKIT_SEED: expected an unsigned integer, found '-1'
; TEMPERATURE: -mlgokit-temperature or MLGOKIT_TEMPERATURE: expected a number of at least 0, found 'warm'
; FLIP: -mlgokit-flip-probability or MLGOKIT_FLIP_PROBABILITY: expected at most 1
; NONE: this plugin has no policy inside; name one with MLGOKIT_POLICY or -mlgokit-policy
