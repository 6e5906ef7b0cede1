; With a frame pointer, or with constants moved, unwind tables say less of pushes and pops. A table names functions that
; are to have that; who has the attribute already, who names registers in assembly, who has no unwind table, and who
; would be slower (many cases, or loops alone) keeps its code. A policy that knows of both gives functions both.
; RUN: llc -O2 %s -o %t.plain
; RUN: FileCheck %s --check-prefix=PLAIN < %t.plain
; RUN: %tool list %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -o %t.listed %s
; RUN: %tool passes %t.table %t.functions calls frame-pointer
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -o - %s | FileCheck %s --check-prefix=POINTER
; RUN: %tool passes %t.table %t.functions calls no-pushed-constants
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -o - %s | FileCheck %s --check-prefix=MOVED
; RUN: %tool passes %t.table %t.functions assembly frame-pointer
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -o %t.same %s
; RUN: cmp %t.plain %t.same
; RUN: %tool passes %t.table %t.functions convention frame-pointer
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -o %t.same %s
; RUN: cmp %t.plain %t.same
; RUN: %tool passes %t.table %t.functions cases frame-pointer
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -o %t.same %s
; RUN: cmp %t.plain %t.same
; RUN: %tool passes %t.table %t.functions loop frame-pointer
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -o %t.same %s
; RUN: cmp %t.plain %t.same
; RUN: %tool passes %t.table %t.functions without frame-pointer no-pushed-constants
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -o %t.same %s
; RUN: cmp %t.plain %t.same
; RUN: %tool passes %t.table %t.functions pointer no-pushed-constants
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -o %t.same %s
; RUN: cmp %t.plain %t.same
; RUN: %tool policy %t.policy pass-selection pass:frame-pointer 0 -200
; RUN: llc -load %plugin -mlgokit-pass-policy=%t.policy -O2 -o - %s | FileCheck %s --check-prefix=POINTER
; RUN: %tool policy %t.policy pass-selection pass:no-pushed-constants 0 -200
; RUN: llc -load %plugin -mlgokit-pass-policy=%t.policy -O2 -o - %s | FileCheck %s --check-prefix=MOVED

; PLAIN-LABEL: calls:
; PLAIN: pushq $7
; PLAIN-NEXT: .cfi_adjust_cfa_offset 8
; POINTER-LABEL: calls:
; POINTER: .cfi_def_cfa_register %rbp
; POINTER: pushq $7
; POINTER-NEXT: popq %rdi
; MOVED-LABEL: calls:
; MOVED-NOT: .cfi_adjust_cfa_offset
; MOVED: movl $7, %edi
; MOVED-LABEL: pointer:
; MOVED: pushq $7
target triple = "x86_64-unknown-linux-gnu"
declare i32 @call(i32)
define i32 @calls(i32 %x) minsize optsize uwtable {
  %a = call i32 @call(i32 7)
  %b = call i32 @call(i32 %x)
  %c = add i32 %a, %b
  ret i32 %c
}
define i32 @pointer(i32 %x) minsize optsize uwtable "frame-pointer"="all" {
  %a = call i32 @call(i32 7)
  %b = call i32 @call(i32 %x)
  %c = add i32 %a, %b
  ret i32 %c
}
declare ghccc void @haskell(i64)
define i32 @convention(i32 %x) minsize optsize uwtable {
  call ghccc void @haskell(i64 7)
  %a = call i32 @call(i32 %x)
  ret i32 %a
}
define i32 @assembly(i32 %x) minsize optsize uwtable {
  %a = call i32 asm sideeffect "nop", "=r,0,~{rbp}"(i32 %x)
  %b = call i32 @call(i32 %a)
  %c = add i32 %a, %b
  ret i32 %c
}
define i32 @without(i32 %x) minsize optsize nounwind {
  %a = call i32 @call(i32 7)
  %b = call i32 @call(i32 %x)
  %c = add i32 %a, %b
  ret i32 %c
}
define i32 @cases(i32 %x) minsize optsize uwtable {
  switch i32 %x, label %none [ i32 0, label %a
                               i32 1, label %b
                               i32 2, label %c
                               i32 3, label %d ]
a:
  %p = call i32 @call(i32 7)
  br label %none
b:
  %q = call i32 @call(i32 11)
  br label %none
c:
  %r = call i32 @call(i32 13)
  br label %none
d:
  %s = call i32 @call(i32 17)
  br label %none
none:
  %found = phi i32 [ %x, %0 ], [ %p, %a ], [ %q, %b ], [ %r, %c ], [ %s, %d ]
  ret i32 %found
}
define i32 @loop(ptr %p, i32 %n) minsize optsize uwtable {
entry:
  br label %next
next:
  %i = phi i32 [ 0, %entry ], [ %j, %next ]
  %sum = phi i32 [ 0, %entry ], [ %more, %next ]
  %at = getelementptr i32, ptr %p, i32 %i
  %v = load i32, ptr %at
  %more = add i32 %sum, %v
  %j = add i32 %i, 1
  %again = icmp slt i32 %j, %n
  br i1 %again, label %next, label %end
end:
  ret i32 %more
}
