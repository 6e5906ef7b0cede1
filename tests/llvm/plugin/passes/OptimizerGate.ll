; The list has the functions that the inliner found, and what passes changed in them from then on. A policy leaves
; passes out of functions without an entry, but not where code is compiled for a link. A table leaves a pass out once or each
; time, in its function alone; one of other functions gives LLVM's code,
; and so do a list and a table with nothing to leave out. Where compile steps leave all to the link, it is for the link.
; Damage is said.
; RUN: opt -passes='default<%Oz>' -S %s -o %t.plain
; RUN: MLGOKIT_CHANGED=%t.list opt -load-pass-plugin=%plugin -mlgokit-policy=:default -passes='default<%Oz>' -S %s -o %t.listed
; RUN: cmp %t.plain %t.listed
; RUN: FileCheck %s --check-prefix=LIST < %t.list
; RUN: %tool optimizer %t.yes %t.list sum
; RUN: opt -load-pass-plugin=%plugin -mlgokit-optimizer-passes=%t.yes -passes='default<%Oz>' -S %s -o %t.same
; RUN: cmp %t.plain %t.same
; RUN: FileCheck %s --check-prefix=PLAIN < %t.plain
; RUN: %tool optimizer %t.each %t.list sum InstCombinePass 65535
; RUN: opt -load-pass-plugin=%plugin -mlgokit-optimizer-passes=%t.each -passes='default<%Oz>' -S %s | FileCheck %s --check-prefix=EACH
; RUN: (echo 'target triple = "x86_64-unknown-linux-gnu"'; cat %s) > %t.x86.ll
; RUN: %tool policy %t.policy pass-selection pass:InstCombinePass 0 -200
; RUN: opt -load-pass-plugin=%plugin -mlgokit-pass-policy=%t.policy -mlgokit-pass-log=%t.log -passes='default<%Oz>' -S %t.x86.ll | FileCheck %s --check-prefix=POLICY
; RUN: %tool log %t.log pass:InstCombinePass pass:GVNPass left_out_default left_out | FileCheck %s --check-prefix=LOG
; RUN: opt -load-pass-plugin=%plugin -mlgokit-optimizer-passes=%t.yes -mlgokit-pass-policy=%t.policy -passes='default<%Oz>' -S %t.x86.ll | FileCheck %s --check-prefix=BESIDE
; RUN: opt -passes='lto-pre-link<%Oz>' -S %t.x86.ll -o %t.step
; RUN: opt -load-pass-plugin=%plugin -mlgokit-pass-policy=%t.policy -passes='lto-pre-link<%Oz>' -S %t.x86.ll -o %t.same
; RUN: cmp %t.step %t.same
; RUN: sed 's/minsize optsize//' %t.x86.ll > %t.fast.ll
; RUN: opt -passes='default<O2>' -S %t.fast.ll -o %t.fast
; RUN: opt -load-pass-plugin=%plugin -mlgokit-pass-policy=%t.policy -passes='default<O2>' -S %t.fast.ll -o %t.same
; RUN: cmp %t.fast %t.same
; RUN: %tool optimizer %t.less %t.list sum minsize 0
; RUN: opt -load-pass-plugin=%plugin -mlgokit-optimizer-passes=%t.less -passes='default<%Oz>' -S %s | FileCheck %s --check-prefix=LESS
; RUN: opt -load-pass-plugin=%plugin -mlgokit-optimizer-passes=%t.less -passes='lto-pre-link<%Oz>' -S %s | FileCheck %s --check-prefix=LESS
; RUN: %tool defers %t.table
; RUN: opt -load-pass-plugin=%plugin -mlgokit-decisions=%t.table -mlgokit-optimizer-passes=%t.less -passes='default<%Oz>' -S %s | FileCheck %s --check-prefix=LESS
; RUN: opt -load-pass-plugin=%plugin -mlgokit-decisions=%t.table -passes='lto-pre-link<%Oz>' -S %s -o %t.steps
; RUN: opt -load-pass-plugin=%plugin -mlgokit-decisions=%t.table -mlgokit-optimizer-passes=%t.less -passes='lto-pre-link<%Oz>' -S %s -o %t.same
; RUN: cmp %t.steps %t.same
; RUN: %tool optimizer %t.never %t.list sum InstCombinePass 1000
; RUN: opt -load-pass-plugin=%plugin -mlgokit-optimizer-passes=%t.never -passes='default<%Oz>' -S %s -o %t.same
; RUN: cmp %t.plain %t.same
; RUN: sed s/sum/total/ %s > %t.other.ll
; RUN: opt -passes='default<%Oz>' -S %t.other.ll -o %t.plain
; RUN: opt -load-pass-plugin=%plugin -mlgokit-optimizer-passes=%t.each -passes='default<%Oz>' -S %t.other.ll -o %t.same
; RUN: cmp %t.plain %t.same
; RUN: head -c -5 %t.each > %t.short
; RUN: not opt -load-pass-plugin=%plugin -mlgokit-optimizer-passes=%t.short -passes='default<%Oz>' -S %s 2>&1 | FileCheck %s --check-prefix=SHORT
; RUN: MLGOKIT_CHANGED=%t.missing/list not opt -load-pass-plugin=%plugin -mlgokit-policy=:default -passes='default<%Oz>' -S %s 2>&1 | FileCheck %s --check-prefix=NOWHERE

; LIST-DAG: function [[KEY:[0-9a-f]+]] sum
; LIST-DAG: changed [[KEY]] minsize 0
; LIST-DAG: function {{[0-9a-f]+}} twice
; LIST: changed [[KEY]] InstCombinePass 0
; LIST-NOT: Analysis
; LIST-NOT: executed
; PLAIN-LABEL: define {{.*}}@sum(
; PLAIN: shl i32 %x, 3
; PLAIN-LABEL: define {{.*}}@twice(
; PLAIN: shl i32 %x, 1
; EACH-LABEL: define {{.*}}@sum(
; EACH: mul {{.*}}i32 %x, 8
; EACH-LABEL: define {{.*}}@twice(
; EACH: shl i32 %x, 1
; POLICY-LABEL: define {{.*}}@sum(
; POLICY: mul {{.*}}i32 %x, 8
; POLICY-LABEL: define {{.*}}@twice(
; POLICY: mul {{.*}}i32 %x, 2
; BESIDE-LABEL: define {{.*}}@sum(
; BESIDE: shl i32 %x, 3
; BESIDE-LABEL: define {{.*}}@twice(
; BESIDE: mul {{.*}}i32 %x, 2
; LOG: sum pass:InstCombinePass=1 pass:GVNPass=0 left_out_default=0 left_out=1
; LOG: sum pass:InstCombinePass=0 pass:GVNPass=1 left_out_default=0 left_out=0
; LOG: twice pass:InstCombinePass=1 pass:GVNPass=0 left_out_default=0 left_out=1
; LESS: define {{.*}}@sum({{.*}} #[[OPTSIZE:[0-9]+]]
; LESS: define {{.*}}@twice({{.*}} #[[BOTH:[0-9]+]]
; LESS-NOT: attributes #[[OPTSIZE]] = {{.*}}minsize
; LESS: attributes #[[OPTSIZE]] = {{.*}}optsize
; LESS: attributes #[[BOTH]] = {{.*}}minsize
; SHORT: error: mlgokit: pass table {{.*}}.short: it is cut short
; NOWHERE: error: mlgokit: list of passes {{.*}}: No such file or directory
define internal i32 @times(i32 %x, i32 %k) minsize optsize {
  %a = mul i32 %x, %k
  ret i32 %a
}
define i32 @sum(i32 %x) minsize optsize {
  %a = call i32 @times(i32 %x, i32 8)
  %c = call i32 @get(i32 %a)
  ret i32 %c
}
define i32 @twice(i32 %x) minsize optsize {
  %a = call i32 @times(i32 %x, i32 2)
  %c = call i32 @get(i32 %a)
  ret i32 %c
}
declare i32 @get(i32)
