; Keys of call sites stay when local values, files and what ThinLTO exports of them have other names, and change with the
; callee's body.
; RUN: sed 's/NAME/one/g; s/NUMBER/7/; s/MODULE/3.llvm.12345/g' %s | opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-log=%t.one -disable-output
; RUN: sed 's/NAME/two/g; s/NUMBER/7/; s/MODULE/14.llvm.678/g' %s | opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-log=%t.two -disable-output
; RUN: sed 's/NAME/one/g; s/NUMBER/8/; s/MODULE/3.llvm.12345/g' %s | opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-log=%t.three -disable-output
; RUN: (for log in one two three; do %tool log %t.$log site; done; echo end) | FileCheck %s

; CHECK: site=[[SITE:[0-9a-f]+]]
; CHECK: site=[[SITE]]
; CHECK-NOT: [[SITE]]
; CHECK: end
source_filename = "NAME/file.c"
declare i32 @get(ptr)
@text.MODULE = hidden constant i32 1
@path = private constant [3 x i8] c"NAME"
define i32 @caller(i32 %x) minsize optsize {
  %NAME = call i32 @callee(i32 %x)
  ret i32 %NAME
}
define i32 @callee(i32 %x) minsize optsize {
  %a = call i32 @get(ptr @path)
  %t = call i32 @get(ptr @text.MODULE)
  %s = add i32 %a, %t
  %b = add i32 %s, NUMBER
  ret i32 %b
}
