; Only calls of functions that call nothing that is defined, so of height 1, are inlined; and nothing into a cycle.
; RUN: %tool policy %t.policy inline-size callsite_height 100 -100
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -mlgokit-log=%t.log -S %s | sed -e '/^!/d' -e '/^$/d' -e 's/, !mlgokit.site ![0-9]*//' > %t.logged
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=%t.policy -S %s | sed '/^$/d' > %t.ll
; RUN: diff %t.logged %t.ll
; RUN: FileCheck %s < %t.ll

; CHECK-LABEL: define i32 @middle
; CHECK-NOT: @leaf
; CHECK-LABEL: define i32 @top
; CHECK: call {{.*}}@middle
; CHECK-LABEL: define i32 @one
; CHECK: call {{.*}}@other
target triple = "x86_64-pc-linux-gnu"

declare i32 @get(i32)
define i32 @leaf(i32 %x) minsize optsize {
  %a = call i32 @get(i32 %x)
  ret i32 %a
}
define i32 @middle(i32 %x) minsize optsize {
  %a = call i32 @leaf(i32 %x)
  ret i32 %a
}
define i32 @top(i32 %x) minsize optsize {
  %a = call i32 @middle(i32 %x)
  ret i32 %a
}
define i32 @one(i32 %x) minsize optsize {
  %a = call i32 @other(i32 %x)
  %b = call i32 @top(i32 %a)
  ret i32 %b
}
define i32 @other(i32 %x) minsize optsize {
  %c = icmp eq i32 %x, 0
  br i1 %c, label %end, label %more
more:
  %a = call i32 @one(i32 %x)
  br label %end
end:
  %b = phi i32 [ 0, %0 ], [ %a, %more ]
  ret i32 %b
}
