; The key of a function is the same with other names of local values and other contents of variables, and another with
; another immediate.
; RUN: %tool trials %t.none
; RUN: sed 's/NAME/one/g; s/NUMBER/5/; s/CONTENTS/1/' %s > %t.one.ll
; RUN: sed 's/NAME/two/g; s/NUMBER/5/; s/CONTENTS/2/' %s > %t.two.ll
; RUN: sed 's/NAME/one/g; s/NUMBER/6/; s/CONTENTS/1/' %s > %t.three.ll
; RUN: for each in one two three; do MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.$each llc -load %plugin -O2 -o %t.s %t.$each.ll && %tool tried %t.$each; done > %t.keys
; RUN: FileCheck %s < %t.keys

; CHECK: changed key=[[CHANGED:[0-9a-f]+]]
; CHECK-NEXT: same key=[[SAME:[0-9a-f]+]]
; CHECK-NEXT: changed key=[[CHANGED]]
; CHECK-NEXT: same key=[[SAME]]
; CHECK-NOT: changed key=[[CHANGED]]
; CHECK: same key=[[SAME]]
target triple = "x86_64-unknown-linux-gnu"
@variable = global i32 CONTENTS
define i32 @changed(i32 %NAME) {
  %a = and i32 %NAME, NUMBER
  %b = load i32, ptr @variable
  %c = add i32 %a, %b
  ret i32 %c
}
define i32 @same(i32 %NAME) {
  %a = add i32 %NAME, 7
  ret i32 %a
}
