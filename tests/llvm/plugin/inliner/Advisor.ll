; Each question is logged with LLVM's decision and the policy's; calls that must be inlined are no questions.
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:default -mlgokit-log=%t.default -S %s -o %t.ll
; RUN: llc %t.ll -o %t.s
; RUN: opt -passes='default<%Oz>' %s | llc | sed s,stdin,%t.ll, | diff - %t.s
; RUN: FileCheck %s < %t.ll
; RUN: %tool log %t.default inlining_default inlining_decision decided_by_table | FileCheck %s --check-prefix=DEFAULT
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:always -mlgokit-log=%t.always -S %s | FileCheck %s --check-prefix=ALL
; RUN: %tool log %t.always inlining_default inlining_decision | FileCheck %s --check-prefix=ALWAYS
; In link-time optimization and before it, a policy leaves all to LLVM unless it is asked for; a rule does not.
; RUN: %tool policy %t.policy inline-size callee_users 0 -1
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -S %s | FileCheck %s --check-prefix=ALL
; RUN: opt -load-pass-plugin=%plugin -passes='lto-pre-link<%Oz>' -mlgokit-policy=%t.policy -S %s | FileCheck %s
; RUN: opt -load-pass-plugin=%plugin -passes='lto<%Oz>' -mlgokit-policy=%t.policy -S %s | FileCheck %s
; RUN: opt -load-pass-plugin=%plugin -passes='thinlto<%Oz>' -mlgokit-policy=%t.policy -S %s | FileCheck %s
; RUN: opt -load-pass-plugin=%plugin -passes='thinlto-pre-link<%Oz>' -mlgokit-policy=%t.policy -mlgokit-log=%t.left -S %s | FileCheck %s
; RUN: %tool log %t.left inlining_default inlining_decision decided_by_table | FileCheck %s --check-prefix=DEFAULT
; RUN: opt -load-pass-plugin=%plugin -passes='lto-pre-link<%Oz>' -mlgokit-policy=:always -S %s | FileCheck %s --check-prefix=ALL
; RUN: opt -load-pass-plugin=%plugin -passes='thinlto<%Oz>' -mlgokit-policy=%t.policy -mlgokit-lto=1 -S %s | FileCheck %s --check-prefix=ALL
; CHECK-LABEL: define i32 @caller
; CHECK-NOT: @must
; CHECK-NOT: @small
; CHECK: call {{.*}}@large
; DEFAULT: module inlining_default=1 inlining_decision=1 decided_by_table=0
; DEFAULT-NEXT: module inlining_default=0 inlining_decision=0 decided_by_table=0
; DEFAULT-NOT: module
; ALL-LABEL: define i32 @caller
; ALL-NOT: @large
; ALL: ret
; ALWAYS: module inlining_default=1 inlining_decision=1
; ALWAYS-NEXT: module inlining_default=0 inlining_decision=1
target triple = "x86_64-pc-linux-gnu"

declare i32 @get(i32)
define internal i32 @must(i32 %x) alwaysinline minsize optsize {
  %a = call i32 @get(i32 %x)
  ret i32 %a
}
define i32 @small(i32 %x) minsize optsize {
  %a = call i32 @get(i32 %x)
  ret i32 %a
}
define i32 @large(i32 %x) minsize optsize {
  %a = call i32 @get(i32 %x)
  %b = call i32 @get(i32 %a)
  %c = call i32 @get(i32 %b)
  %d = call i32 @get(i32 %c)
  ret i32 %d
}
define i32 @caller(i32 %x) minsize optsize {
  %a = call i32 @must(i32 %x)
  %b = call i32 @small(i32 %a)
  %c = call i32 @large(i32 %b)
  ret i32 %c
}
