; Functions that consist of targets of a jump, four or more, are left to LLVM by policies of passes, priorities and spill
; weights where they are compiled for size. Draws and logs go on.
; RUN: %tool policy %t.passes pass-selection occurrence 100 -200
; RUN: llc -load %plugin -mlgokit-pass-policy=%t.passes -mlgokit-pass-log=%t.log -O2 -o %t.s %s
; RUN: %tool log %t.log left_out | FileCheck %s
; RUN: llc -load %plugin -mlgokit-pass-policy=%t.passes -mlgokit-flip-probability=1 -mlgokit-pass-log=%t.drawn -O2 -o %t.s %s
; RUN: %tool log %t.drawn left_out | FileCheck %s --check-prefix=DRAWN
; RUN: %tool policy %t.weights regalloc-weight li_size 0 1
; RUN: llc -load %plugin -mlgokit-weight-policy=%t.weights -mlgokit-weight-log=%t.weighed -O2 -o %t.s %s
; RUN: %tool log %t.weighed log2_factor | FileCheck %s --check-prefix=WEIGHT
; RUN: sed 's/minsize optsize//' %s > %t.fast.ll
; RUN: llc -load %plugin -mlgokit-weight-policy=%t.weights -mlgokit-weight-log=%t.fast -O2 -o %t.s %t.fast.ll
; RUN: %tool log %t.fast log2_factor | FileCheck %s --check-prefix=FAST

; CHECK-NOT: {{(cases|labels)}} left_out=1
; CHECK: shared left_out=1
; CHECK-NOT: {{(cases|labels)}} left_out=1
; CHECK: much left_out=1
; CHECK-NOT: {{(cases|labels)}} left_out=1
; DRAWN: labels left_out=1
; WEIGHT-NOT: {{(cases|labels)}} log2_factor=1
; WEIGHT: shared log2_factor=1{{$}}
; WEIGHT-NOT: {{(cases|labels)}} log2_factor=1
; WEIGHT: much log2_factor=1{{$}}
; WEIGHT-NOT: {{(cases|labels)}} log2_factor=1
; FAST: cases log2_factor=1{{$}}

target triple = "x86_64-unknown-linux-gnu"

declare i64 @f(i64)

; Five cases lead to two blocks.
define i64 @shared(i64 %x) minsize optsize {
  switch i64 %x, label %end [ i64 1, label %one  i64 2, label %one  i64 5, label %two  i64 7, label %two  i64 9, label %one ]
one:
  %a = call i64 @f(i64 %x)
  %s = add i64 %a, %x
  ret i64 %s
two:
  ret i64 7
end:
  ret i64 %x
}

; Four of ten blocks.
define i64 @much(i64 %x, i64 %y) minsize optsize {
  %b = icmp eq i64 %x, 77
  br i1 %b, label %first, label %second
first:
  %c = call i64 @f(i64 5)
  br label %second
second:
  %d = icmp eq i64 %y, 76
  br i1 %d, label %third, label %fourth
third:
  %g = call i64 @f(i64 6)
  br label %fourth
fourth:
  switch i64 %x, label %end [ i64 1, label %l1  i64 2, label %l2  i64 3, label %l3  i64 4, label %l4 ]
l1:
  %a = call i64 @f(i64 %x)
  %s = add i64 %a, %y
  ret i64 %s
l2:
  ret i64 3
l3:
  ret i64 4
l4:
  ret i64 9
end:
  ret i64 %x
}

define i64 @cases(i64 %x) minsize optsize {
  switch i64 %x, label %end [ i64 1, label %l1  i64 2, label %l2  i64 3, label %l3  i64 4, label %l4 ]
l1:
  %a = call i64 @f(i64 %x)
  %s = add i64 %a, %x
  ret i64 %s
l2:
  ret i64 3
l3:
  ret i64 4
l4:
  ret i64 9
end:
  ret i64 %x
}

define i64 @labels(i64 %x, ptr %to) minsize optsize {
  indirectbr ptr %to, [ label %l1, label %l2, label %l3, label %l4 ]
l1:
  %a = call i64 @f(i64 %x)
  %s = add i64 %a, %x
  ret i64 %s
l2:
  ret i64 3
l3:
  ret i64 4
l4:
  ret i64 9
}
