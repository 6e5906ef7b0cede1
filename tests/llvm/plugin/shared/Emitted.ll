; Who listens for emitted code leaves the compiler's remarks as they are: those that a user asks for come, no others, in
; a linker as well, whose own handler leaves it to LLVM which are asked for.
; RUN: echo begun > %t.list
; RUN: MLGOKIT_CHANGED=%t.list llc -load %plugin -O2 -pass-remarks-analysis=asm-printer -o %t.s %s 2>&1 | FileCheck %s --check-prefix=ASKED
; RUN: MLGOKIT_CHANGED=%t.list llc -load %plugin -O2 -pass-remarks-analysis=prologepilog -o %t.s %s 2>&1 | FileCheck %s --allow-empty --check-prefix=OTHERS
; RUN: opt -o %t.bc %s
; RUN: MLGOKIT_CHANGED=%t.list ld.lld --load-pass-plugin=%plugin -shared -o %t.so %t.bc > %t.said 2>&1
; RUN: FileCheck %s --allow-empty --check-prefix=LINKED < %t.said

; ASKED: 2 instructions in function
; OTHERS-NOT: instructions in function
; LINKED-NOT: {{instructions|stack bytes}} in function
target triple = "x86_64-unknown-linux-gnu"
define i32 @straight(i32 %a) {
  %b = add i32 %a, 7
  ret i32 %b
}
