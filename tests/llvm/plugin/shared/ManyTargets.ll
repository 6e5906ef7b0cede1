; Functions that jump by an address, and those whose switches have four cases together, are left to LLVM by policies of
; passes, priorities and spill weights where they are compiled for size. Draws and logs go on.
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

; CHECK-NOT: {{(table|two|labels)}} left_out=1
; CHECK: few left_out=1
; CHECK-NOT: {{(table|two|labels)}} left_out=1
; DRAWN: labels left_out=1
; WEIGHT: few log2_factor=1{{$}}
; WEIGHT-NOT: {{(table|two|labels)}} log2_factor=1
; FAST: table log2_factor=1{{$}}

target triple = "x86_64-unknown-linux-gnu"

declare i64 @f(i64)

define i64 @few(i64 %x) minsize optsize {
  switch i64 %x, label %end [ i64 1, label %one  i64 2, label %one  i64 5, label %end ]
one:
  %a = call i64 @f(i64 %x)
  %s = add i64 %a, %x
  ret i64 %s
end:
  ret i64 %x
}

define i64 @table(i64 %x) minsize optsize {
  switch i64 %x, label %end [ i64 1, label %one  i64 2, label %one  i64 5, label %one  i64 9, label %one ]
one:
  %a = call i64 @f(i64 %x)
  %s = add i64 %a, %x
  ret i64 %s
end:
  ret i64 %x
}

define i64 @two(i64 %x, i64 %y) minsize optsize {
  switch i64 %x, label %end [ i64 1, label %one  i64 5, label %one ]
one:
  %a = call i64 @f(i64 %x)
  switch i64 %y, label %end [ i64 3, label %more  i64 7, label %more ]
more:
  %s = add i64 %a, %x
  ret i64 %s
end:
  ret i64 %x
}

define i64 @labels(i64 %x, ptr %to) minsize optsize {
  indirectbr ptr %to, [ label %one, label %end ]
one:
  %a = call i64 @f(i64 %x)
  %s = add i64 %a, %x
  ret i64 %s
end:
  ret i64 %x
}
