; A line of column names, one for each function, and one for the module; then the process ends.
; RUN: opt -load-pass-plugin=%plugin -passes='default<O1>' -mlgokit-describe=%t -S -o %t.ll %s
; RUN: not test -s %t.ll
; RUN: FileCheck %s < %t
; RUN: MLGOKIT_DESCRIBE_AT=end opt -load-pass-plugin=%plugin -passes='default<O1>' -mlgokit-describe=%t.end -disable-output %s
; RUN: FileCheck %s --check-prefix=END < %t.end
; RUN: not opt -load-pass-plugin=%plugin -passes='default<O1>' -mlgokit-describe=%t.none/file -disable-output %s 2>&1 | FileCheck %s --check-prefix=ERROR

; CHECK: {"columns":["BasicBlockCount",{{.*}}"instructions","call_sites","decidable_call_sites","arguments","blocks","opcode_ret"
; CHECK-NEXT: ["caller","external","{{[0-9a-f]+}}",1,{{.*}},4,2,1,1,1,1,
; CHECK-NEXT: ["callee","internal","{{[0-9a-f]+}}",1,{{.*}},2,0,0,1,1,1,
; CHECK-NEXT: {"declarations":1,"functions":2,"global_bytes":12,"identity":"{{[0-9a-f]+}}","language":"","llvm":{{[0-9]+}}}
; CHECK-NOT: {{.}}
; END: "functions":1
; ERROR: error: mlgokit: cannot write the description to {{.*}}.none/file: No such file or directory
@table = global [3 x i32] zeroinitializer
declare i32 @get(i32)
define i32 @caller(i32 %x) {
  %a = call i32 @callee(i32 %x)
  %b = call i32 @get(i32 %a)
  %c = add i32 %b, 1
  ret i32 %c
}
define internal i32 @callee(i32 %x) {
  %a = mul i32 %x, 3
  ret i32 %a
}
