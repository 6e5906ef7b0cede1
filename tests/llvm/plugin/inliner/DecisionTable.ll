; A table decides by key, for the module whose functions it names; others stay as LLVM has them. Damage is said.
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-log=%t.never -disable-output %S/../Inputs/calls.ll
; RUN: %tool decisions %t.table %t.never
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-decisions=%t.table -mlgokit-log=%t.log -S %S/../Inputs/calls.ll | FileCheck %s
; RUN: %tool log %t.log decided_by_table inlining_decision | FileCheck %s --check-prefix=LOG
; RUN: sed 's/first/one/; s/second/two/; s/small/three/; s/large/four/' %S/../Inputs/calls.ll > %t.other.ll
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-decisions=%t.table -S %t.other.ll -o %t.tuned
; RUN: opt -passes='default<%Oz>' -S %t.other.ll | diff - %t.tuned
; RUN: head -c -5 %t.table > %t.short
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-decisions=%t.short -disable-output %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=SHORT
; RUN: (cat %t.table; echo) > %t.long
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-decisions=%t.long -disable-output %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=LONG
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-decisions=%s -disable-output %S/../Inputs/calls.ll 2>&1 | FileCheck %s --check-prefix=OTHER

; CHECK-NOT: call {{.*}}@{{small|large}}
; LOG-COUNT-4: decided_by_table=1 inlining_decision=1
; LOG-NOT: module
; SHORT: error: mlgokit: decision table {{.*}}.short: it is cut short
; LONG: error: mlgokit: decision table {{.*}}.long: it is not as long as it says
; OTHER: error: mlgokit: decision table {{.*}}: expected a file that `mlgokit tune` wrote, found another
