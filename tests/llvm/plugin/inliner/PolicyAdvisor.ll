; The advisor that takes the place of LLVM's decides like it, with a log and without one: it stops when the module has grown, leaves
; alone what is never inlined or cannot be reached, inlines what must be, and lets the options of LLVM's advisor hold.
; RUN: %tool policy %t.policy inline-size callee_instructions 1 -100
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -mlgokit-log=%t.log -S %s | sed -e '/^!/d' -e '/^$/d' -e 's/, !mlgokit.site ![0-9]*//' > %t.logged
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -S %s | sed '/^$/d' > %t.ll
; RUN: diff %t.logged %t.ll
; RUN: FileCheck %s < %t.ll
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -ml-advisor-size-increase-threshold=1.01 -mlgokit-policy=%t.policy -mlgokit-log=%t.log -S %s | sed -e '/^!/d' -e '/^$/d' -e 's/, !mlgokit.site ![0-9]*//' > %t.logged
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -ml-advisor-size-increase-threshold=1.01 -mlgokit-policy=%t.policy -S %s | sed '/^$/d' > %t.ll
; RUN: diff %t.logged %t.ll
; RUN: FileCheck %s --check-prefix=STOPS < %t.ll
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -ml-inliner-skip-policy=if-caller-not-cold -mlgokit-policy=%t.policy -S %s | FileCheck %s --check-prefix=SKIPS
; RUN[aarch64]: opt -load-pass-plugin=%plugin -passes='inliner-ml-advisor-release' -mlgokit-policy=:always -S %S/../Inputs/streaming.ll | FileCheck %s --check-prefix=STREAMING

; CHECK-LABEL: define {{.*}}@caller
; CHECK-NOT: @part
; CHECK-NOT: @must
; CHECK: call {{.*}}@never
; CHECK-NOT: @part
; STOPS-LABEL: define {{.*}}@caller
; STOPS: call {{.*}}@part
; STREAMING-LABEL: define {{.*}}@caller
; STREAMING-NOT: @plain
; STREAMING: call void @neon
; SKIPS-LABEL: define {{.*}}@caller
; SKIPS: call {{.*}}@part
target triple = "x86_64-pc-linux-gnu"

declare i32 @get(i32)
declare void @fail() noreturn
define i32 @part(i32 %x) minsize optsize {
  %a = call i32 @get(i32 %x)
  %b = call i32 @get(i32 %a)
  %c = icmp eq i32 %b, 0
  br i1 %c, label %bad, label %good
bad:
  call void @fail()
  unreachable
good:
  %d = call i32 @get(i32 %b)
  %e = call i32 @get(i32 %d)
  %f = call i32 @get(i32 %e)
  ret i32 %f
}
define internal i32 @must(i32 %x) alwaysinline minsize optsize {
  %a = call i32 @get(i32 %x)
  ret i32 %a
}
define i32 @never(i32 %x) noinline minsize optsize {
  %a = call i32 @get(i32 %x)
  ret i32 %a
}
define i32 @ends(i32 %x) minsize optsize {
  call void @fail()
  unreachable
}
define i32 @caller(i32 %x) minsize optsize {
  %a = call i32 @part(i32 %x)
  %b = call i32 @must(i32 %a)
  %c = call i32 @never(i32 %b)
  %d = call i32 @part(i32 %c)
  %e = icmp eq i32 %d, 7
  br i1 %e, label %then, label %end
then:
  %f = call i32 @ends(i32 %d)
  %g = call i32 @part(i32 %f)
  br label %end
end:
  %h = phi i32 [ %d, %0 ], [ %g, %then ]
  ret i32 %h
}
