; A table is asked before a rule, the log says which of them answered, and a draw may turn round what either says.
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-log=%t.never -disable-output %S/../Inputs/calls.ll
; RUN: %tool decisions %t.table %t.never
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-decisions=%t.table -mlgokit-log=%t.table.log -disable-output %S/../Inputs/calls.ll
; RUN: %tool log %t.table.log decided_by_table inlining_decision | FileCheck %s --check-prefix=TABLE
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-decisions=%t.table -mlgokit-flip-probability=1 -mlgokit-log=%t.turned -disable-output %S/../Inputs/calls.ll
; RUN: %tool log %t.turned decided_by_table inlining_decision | FileCheck %s --check-prefix=TURNED
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:always -mlgokit-log=%t.always -disable-output %S/../Inputs/calls.ll
; RUN: %tool log %t.always decided_by_table inlining_decision | FileCheck %s --check-prefix=RULE

; TABLE: module decided_by_table=1 inlining_decision=1
; TURNED: module decided_by_table=1 inlining_decision=0
; RULE-COUNT-4: module decided_by_table=0 inlining_decision=1
