; LLVM's own decisions give LLVM's code; others are taken as they are given, and are logged with the mask that allows them.
; RUN: llc -O2 -o %t.plain %S/../Inputs/pressure.ll
; RUN: llc -load %plugin -mlgokit-eviction-policy=:default -mlgokit-eviction-log=%t.log -O2 -o %t.default %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.default
; RUN: %tool log %t.log index_to_evict_default index_to_evict log_probability | FileCheck %s --check-prefix=DEFAULT
; RUN: llc -load %plugin -mlgokit-eviction-policy=:first -mlgokit-eviction-log=%t.first -O2 -o %t.other %S/../Inputs/pressure.ll
; RUN: not cmp %t.plain %t.other
; RUN: %tool log %t.first mask index_to_evict | FileCheck %s --check-prefix=FIRST
; PowerPC has classes of more registers than LLVM's advisor has columns for. The heuristic decides there.
; RUN[ppc64le]: (echo 'define void @f(ptr %a) {'; seq -f '%%v%g = load volatile <2 x double>, ptr %%a' 80; seq -f 'store volatile <2 x double> %%v%g, ptr %%a' 80; echo 'ret void }') > %t.vectors.ll
; RUN[ppc64le]: llc -mtriple=powerpc64le-unknown-linux-gnu -mcpu=pwr8 -O2 -o %t.plain %t.vectors.ll
; RUN[ppc64le]: llc -load %plugin -mlgokit-eviction-policy=:first -mtriple=powerpc64le-unknown-linux-gnu -mcpu=pwr8 -O2 -o %t.first.s %t.vectors.ll
; RUN[ppc64le]: cmp %t.plain %t.first.s

; DEFAULT: busy index_to_evict_default=[[COLUMN:[0-9]+]] index_to_evict=[[COLUMN]] log_probability=0{{$}}
; FIRST: busy mask={{(0,)*}}1,{{[01,]+}} index_to_evict=
; FIRST-NOT: busy mask=1,{{[01,]+}} index_to_evict={{[1-9]}}
