; Code generation adds what each function executes to a list that the optimizer began: the instructions of straight
; code that returns, more in a loop. The code is as without. Where the optimizer began no list, none is begun here. A
; list that cannot be written is an error.
; RUN: llc -O2 -filetype=obj -o %t.plain %s
; RUN: echo begun > %t.list
; RUN: MLGOKIT_CHANGED=%t.list llc -load %plugin -O2 -filetype=obj -o %t.listed %s
; RUN: cmp %t.plain %t.listed
; RUN: FileCheck %s < %t.list
; RUN: rm -f %t.none
; RUN: MLGOKIT_CHANGED=%t.none llc -load %plugin -O2 -filetype=obj -o %t.listed %s
; RUN: cmp %t.plain %t.listed
; RUN: not cat %t.none
; RUN: mkdir -p %t.folder
; RUN: MLGOKIT_CHANGED=%t.folder not llc -load %plugin -O2 -filetype=obj -o %t.listed %s 2>&1 | FileCheck %s --check-prefix=FOLDER

; CHECK: begun
; CHECK-NEXT: executed 2 straight
; CHECK-NEXT: executed {{[1-9][0-9][0-9.]*}} loop
; FOLDER: error: mlgokit: list of passes {{.*}}.folder: Is a directory
target triple = "x86_64-unknown-linux-gnu"
define i32 @straight(i32 %a) {
  %b = add i32 %a, 7
  ret i32 %b
}
define void @loop(ptr %p, i64 %n) {
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %at = getelementptr i32, ptr %p, i64 %i
  store volatile i32 1, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %exit
exit:
  ret void
}
