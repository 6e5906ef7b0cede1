; Digests of final code cover a constant that code refers to, and metadata; not names of local values or of types.
; RUN: sed 's/NAME/one/g; s/NUMBER/7/; s/LIMIT/90/' %s > %t.one.ll
; RUN: sed 's/NAME/two/g; s/NUMBER/7/; s/LIMIT/90/' %s > %t.two.ll
; RUN: sed 's/NAME/one/g; s/NUMBER/8/; s/LIMIT/90/' %s > %t.three.ll
; RUN: sed 's/NAME/one/g; s/NUMBER/7/; s/LIMIT/80/' %s > %t.four.ll
; RUN: for each in one two three four; do MLGOKIT_FUNCTIONS=%t.$each opt -load-pass-plugin=%plugin -passes='default<%Oz>' -disable-output %t.$each.ll; done
; RUN: cat %t.one %t.two %t.three %t.four | FileCheck %s

; CHECK: {{[ns]}} [[READS:[0-9a-f]+]] reads
; CHECK-NEXT: {{[ns]}} [[BOUNDED:[0-9a-f]+]] bounded
; CHECK-NEXT: {{[ns]}} [[READS]] reads
; CHECK-NEXT: {{[ns]}} [[BOUNDED]] bounded
; CHECK-NOT: [[READS]] reads
; CHECK: {{[ns]}} [[BOUNDED]] bounded
; CHECK-NEXT: {{[ns]}} [[READS]] reads
; CHECK-NOT: [[BOUNDED]] bounded
target triple = "x86_64-unknown-linux-gnu"
@constant = constant [2 x i32] [i32 NUMBER, i32 1]
define i32 @reads(i64 %NAME) {
  %a = getelementptr i32, ptr @constant, i64 %NAME
  %b = load i32, ptr %a
  ret i32 %b
}
define i32 @bounded(ptr %NAME) {
  %a = load volatile i32, ptr %NAME, !range !0
  ret i32 %a
}
!0 = !{i32 0, i32 LIMIT}
