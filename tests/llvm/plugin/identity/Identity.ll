; Names that a module gives and the order of definitions do not count; a constant does, also through a callee.
; RUN: sed 's/NAME/one/g; s/NUMBER/7/' %s | opt -load-pass-plugin=%plugin -passes='default<O1>' -mlgokit-describe=%t.one -disable-output
; RUN: sed 's/NAME/two/g; s/NUMBER/7/' %s | opt -load-pass-plugin=%plugin -passes='default<O1>' -mlgokit-describe=%t.two -disable-output
; RUN: sed 's/NAME/one/g; s/NUMBER/8/' %s | opt -load-pass-plugin=%plugin -passes='default<O1>' -mlgokit-describe=%t.three -disable-output
; RUN: cat %t.one %t.two %t.three | FileCheck %s

; CHECK: ["alone","external","[[ALONE:[0-9a-f]+]]"
; CHECK: ["caller","external","[[CALLER:[0-9a-f]+]]"
; CHECK: ["one","external","[[CALLEE:[0-9a-f]+]]"
; CHECK: "identity":"[[MODULE:[0-9a-f]+]]"
; CHECK: ["alone","external","[[ALONE]]"
; CHECK: ["caller","external","[[CALLER]]"
; CHECK: ["two","external","[[CALLEE]]"
; CHECK: "identity":"[[MODULE]]"
; CHECK: ["alone","external","[[ALONE]]"
; CHECK-NOT: [[CALLER]]
; CHECK-NOT: [[CALLEE]]
; CHECK-NOT: [[MODULE]]
define i32 @alone(i32 %x) {
  ret i32 %x
}
define i32 @caller(i32 %x) {
  %NAME = call i32 @NAME(i32 %x)
  ret i32 %NAME
}
define i32 @NAME(i32 %x) {
  %a = add i32 %x, NUMBER
  ret i32 %a
}
