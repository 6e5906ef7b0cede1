; A compiler ends behind the inliner where what it decided is known: its log is whole, and there is no object. Where
; something else was decided, it goes on.
; RUN: rm -rf %t && mkdir %t
; RUN: MLGOKIT_POLICY=:always MLGOKIT_LOG=%t/log MLGOKIT_DECIDED=%t/decided clang -Oz -Wno-override-module -fpass-plugin=%plugin -c -o %t/all.o %s
; RUN: FileCheck %s --check-prefix=ON < %t/decided
; RUN: %tool known %t/known %t/decided
; RUN: MLGOKIT_POLICY=:always MLGOKIT_LOG=%t/again MLGOKIT_DECIDED=%t/ended MLGOKIT_KNOWN_DECISIONS=%t/known clang -Oz -Wno-override-module -fpass-plugin=%plugin -c -o %t/none.o %s
; RUN: FileCheck %s --check-prefix=END < %t/ended
; RUN: test ! -s %t/none.o
; RUN: cmp %t/log %t/again
; RUN: MLGOKIT_POLICY=:never MLGOKIT_DECIDED=%t/other MLGOKIT_KNOWN_DECISIONS=%t/known clang -Oz -Wno-override-module -fpass-plugin=%plugin -c -o %t/never.o %s
; RUN: FileCheck %s --check-prefix=ON < %t/other
; RUN: llvm-nm %t/never.o | FileCheck %s --check-prefix=OBJECT
; RUN: head -c 5 %t/known > %t/short
; RUN: not env MLGOKIT_POLICY=:always MLGOKIT_DECIDED=%t/other MLGOKIT_KNOWN_DECISIONS=%t/short clang -Oz -Wno-override-module -fpass-plugin=%plugin -c -o %t/short.o %s 2>&1 | FileCheck %s --check-prefix=SHORT

; ON: g {{[0-9a-f]+$}}
; END: e {{[0-9a-f]+$}}
; OBJECT: t callee
; SHORT: error: mlgokit: known decisions {{.*}}short: it is cut short
target triple = "x86_64-unknown-linux-gnu"
define internal i32 @callee(i32 %x) minsize optsize {
  %a = mul i32 %x, 3
  %b = add i32 %a, 77
  ret i32 %b
}
define i32 @first(i32 %x) minsize optsize {
  %a = call i32 @callee(i32 %x)
  ret i32 %a
}
define i32 @second(i32 %x) minsize optsize {
  %a = call i32 @callee(i32 %x)
  ret i32 %a
}
