; Modules compiled for size go to the policy, others only if asked for; without a policy LLVM decides.
; RUN: sed 's/ATTRIBUTES/minsize optsize/' %s > %t.size.ll
; RUN: sed 's/ATTRIBUTES//' %s > %t.speed.ll
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -S %t.size.ll | FileCheck %s --check-prefix=CALLED
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -S %t.speed.ll | FileCheck %s --check-prefix=INLINED
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-any-level=1 -S %t.speed.ll | FileCheck %s --check-prefix=CALLED
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-eviction-policy=:first -S %t.size.ll | FileCheck %s --check-prefix=INLINED
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-eviction-policy=:first -cgscc-inline-replay=%t.size.ll -S %t.size.ll 2>&1 | FileCheck %s --check-prefix=BOTH
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.missing -S %t.size.ll 2>&1 | FileCheck %s --check-prefix=ERROR

; CALLED-LABEL: define i32 @caller
; CALLED: call {{.*}}i32 @callee
; INLINED-LABEL: define i32 @caller
; INLINED-NOT: call i32 @callee
; INLINED: call {{.*}}i32 @get
; BOTH: error: mlgokit: expected either -cgscc-inline-replay or the plugin, found both
; ERROR: error: mlgokit: policy {{.*}}.missing: expected a readable file, found: No such file or directory
declare i32 @get(i32)
define internal i32 @callee(i32 %x) ATTRIBUTES {
  %a = call i32 @get(i32 %x)
  ret i32 %a
}
define i32 @caller(i32 %x) ATTRIBUTES {
  %a = call i32 @callee(i32 %x)
  ret i32 %a
}
