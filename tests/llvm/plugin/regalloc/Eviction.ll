; LLVM's own decisions give LLVM's code; others are taken as they are given, and are logged with the mask that allows them.
; RUN: llc -O2 -o %t.plain %S/../Inputs/pressure.ll
; RUN: llc -load %plugin -mlgokit-eviction-policy=:default -mlgokit-eviction-log=%t.log -O2 -o %t.default %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.default
; RUN: %tool log %t.log index_to_evict_default index_to_evict log_probability | FileCheck %s --check-prefix=DEFAULT
; RUN: llc -load %plugin -mlgokit-eviction-policy=:first -mlgokit-eviction-log=%t.first -O2 -o %t.other %S/../Inputs/pressure.ll
; RUN: not cmp %t.plain %t.other
; RUN: %tool log %t.first mask index_to_evict | FileCheck %s --check-prefix=FIRST

; DEFAULT: busy index_to_evict_default=[[COLUMN:[0-9]+]] index_to_evict=[[COLUMN]] log_probability=0{{$}}
; FIRST: busy mask={{(0,)*}}1,{{[01,]+}} index_to_evict=
; FIRST-NOT: busy mask=1,{{[01,]+}} index_to_evict={{[1-9]}}
