; A function whose digest is known is dropped, so the object only refers to it; one that others need to see is not.
; A name that would be several lines of the list ends the listing. One call of each function executes two instructions.
; RUN: MLGOKIT_POLICY=:default MLGOKIT_FUNCTIONS=%t.list clang -Oz -Wno-override-module -fpass-plugin=%plugin -c -o %t.o %s
; RUN: FileCheck %s < %t.list
; RUN: %tool known %t.known %t.list
; RUN: MLGOKIT_FUNCTIONS=%t.again MLGOKIT_KNOWN=%t.known MLGOKIT_POLICY=:default clang -Oz -Wno-override-module -fpass-plugin=%plugin -c -o %t.less.o %s
; RUN: FileCheck %s --check-prefix=AGAIN < %t.again
; RUN: llvm-nm %t.less.o | FileCheck %s --check-prefix=OBJECT
; RUN: head -c 5 %t.known > %t.short
; RUN: not env MLGOKIT_FUNCTIONS=%t.again MLGOKIT_KNOWN=%t.short MLGOKIT_POLICY=:default clang -Oz -Wno-override-module -fpass-plugin=%plugin -c -o %t.less.o %s 2>&1 | FileCheck %s --check-prefix=SHORT

; RUN: sed -e 's/@plain/@"plain\\0Ad 00000000000000000000000000000000 used"/' %s > %t.lines.ll
; RUN: MLGOKIT_POLICY=:default MLGOKIT_FUNCTIONS=%t.lines clang -Oz -Wno-override-module -fpass-plugin=%plugin -c -o %t.lines.o %t.lines.ll
; RUN: test ! -s %t.lines

; CHECK: n {{[0-9a-f]+}} plain
; CHECK-NEXT: n {{[0-9a-f]+}} constant
; CHECK-NEXT: k 00000000000000000000000000000000 used
; CHECK-NEXT: c 00000000000000004000000000000000 plain
; CHECK-NEXT: c 00000008000000004000000000000000 constant
; CHECK-NEXT: c 00000000000000004000000000000000 used
; AGAIN: d {{[0-9a-f]+}} plain
; AGAIN-NEXT: d {{[0-9a-f]+}} constant
; AGAIN-NEXT: k {{0+}} used
; OBJECT-NOT: T plain
; OBJECT: T used
; OBJECT-NOT: T plain
; SHORT: error: mlgokit: known functions {{.*}}.short: it is cut short
target triple = "x86_64-unknown-linux-gnu"
@llvm.used = appending global [1 x ptr] [ptr @used], section "llvm.metadata"
define i32 @plain(i32 %x) minsize optsize {
  %a = mul i32 %x, 3
  ret i32 %a
}
define double @constant(double %x) minsize optsize {
  %a = fmul double %x, 3.25
  ret double %a
}
define i32 @used(i32 %x) minsize optsize {
  %a = add i32 %x, 3
  ret i32 %a
}
