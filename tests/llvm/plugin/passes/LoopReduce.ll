; Loop strength reduction is left out of a function by the table of the optimizer's passes, and of no other one. The
; optimizer tells the code generator by an attribute of the function, which changes nothing where no plugin reads it; if
; all have it, whatever their names, the code is that of -disable-lsr. The list has the functions with loops. A policy
; that knows of it gives the attribute, too, and the list then lacks it.
; RUN: MLGOKIT_CHANGED=%t.list opt -load-pass-plugin=%plugin -mlgokit-policy=:default -passes='default<%Oz>' -S %s -o %t.plain.ll
; RUN: FileCheck %s --check-prefix=LIST < %t.list
; RUN: llc -O2 %t.plain.ll -o %t.plain
; RUN: llc -O2 -disable-lsr %t.plain.ll -o %t.off
; RUN: not cmp %t.plain %t.off
; RUN: %tool optimizer %t.one %t.list sum loop-reduce 0
; RUN: opt -load-pass-plugin=%plugin -mlgokit-optimizer-passes=%t.one -passes='default<%Oz>' -S %s -o %t.one.ll
; RUN: llc -O2 %t.one.ll -o %t.same
; RUN: cmp %t.plain %t.same
; RUN: llc -load %plugin -mlgokit-optimizer-passes=%t.one -O2 %t.one.ll -o %t.one.s
; RUN: not cmp %t.plain %t.one.s
; RUN: not cmp %t.off %t.one.s
; RUN: sed 's/^attributes #[0-9]* = {/& "mlgokit-without"="loop-reduce"/' %t.plain.ll > %t.all.ll
; RUN: llc -load %plugin -mlgokit-optimizer-passes=%t.one -O2 %t.all.ll -o %t.same
; RUN: cmp %t.off %t.same
; RUN: %tool policy %t.policy pass-selection pass:loop-reduce 0 -200
; RUN: opt -load-pass-plugin=%plugin -mlgokit-pass-policy=%t.policy -passes='default<%Oz>' -S %s | FileCheck %s --check-prefix=POLICY
; RUN: MLGOKIT_CHANGED=%t.left opt -load-pass-plugin=%plugin -mlgokit-policy=:default -mlgokit-pass-policy=%t.policy -passes='default<%Oz>' -S %s -o %t.left.ll
; RUN: FileCheck %s --check-prefix=LEFT < %t.left

; LEFT: changed
; LEFT-NOT: loop-reduce
; POLICY: define {{.*}}@sum({{.*}} #[[ALL:[0-9]+]]
; POLICY: attributes #[[ALL]] = {{.*}}"mlgokit-without"="loop-reduce"
; LIST-DAG: function [[KEY:[0-9a-f]+]] sum
; LIST-DAG: changed [[KEY]] loop-reduce 0
; LIST-DAG: function [[NONE:[0-9a-f]+]] straight
; LIST-NOT: changed [[NONE]] loop-reduce
target triple = "x86_64-unknown-linux-gnu"
define i32 @sum(ptr %a, i64 %n, i64 %s) minsize optsize {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %total = phi i32 [ 0, %entry ], [ %more, %loop ]
  %far = mul i64 %i, %s
  %from = getelementptr i32, ptr %a, i64 %far
  %v = load i32, ptr %from
  %times = mul i32 %v, 3
  %more = add i32 %total, %times
  %behind = add i64 %i, 5
  %to = getelementptr i32, ptr %a, i64 %behind
  store i32 %more, ptr %to
  %next = add i64 %i, 1
  %again = icmp slt i64 %next, %n
  br i1 %again, label %loop, label %end
end:
  ret i32 %more
}
define i32 @"odd \22name\5C"(ptr %a, i64 %n, i64 %s) minsize optsize {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %total = phi i32 [ 0, %entry ], [ %more, %loop ]
  %far = mul i64 %i, %s
  %from = getelementptr i32, ptr %a, i64 %far
  %v = load i32, ptr %from
  %times = mul i32 %v, 7
  %more = add i32 %total, %times
  %behind = add i64 %i, 5
  %to = getelementptr i32, ptr %a, i64 %behind
  store i32 %more, ptr %to
  %next = add i64 %i, 1
  %again = icmp slt i64 %next, %n
  br i1 %again, label %loop, label %end
end:
  ret i32 %more
}
define i32 @straight(i32 %x) minsize optsize {
  %y = mul i32 %x, 5
  %z = xor i32 %y, 9
  ret i32 %z
}
