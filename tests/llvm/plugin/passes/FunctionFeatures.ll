; A function is counted as it comes to the code generator, loops with what is the same in each turn; debug information
; does not count.
; RUN: llc -load %plugin -mlgokit-pass-log=%t.log -O2 -o %t.s %s
; RUN: %tool log %t.log instructions blocks phis calls call_arguments constant_arguments loads globals is_minsize > %t.counts
; RUN: FileCheck %s < %t.counts
; RUN: %tool log %t.log loops deepest_loop loop_blocks loop_calls loop_invariants loop_globals self_loops > %t.loops
; RUN: FileCheck %s --check-prefix=LOOP < %t.loops

; CHECK: {{^}}total instructions=10 blocks=3 phis=2 calls=1 call_arguments=2 constant_arguments=1 loads=1 globals=1 is_minsize=1{{$}}
; CHECK: {{^}}leaf instructions=1 blocks=1 phis=0 calls=0 call_arguments=0 constant_arguments=0 loads=0 globals=0 is_minsize=0{{$}}
; LOOP: {{^}}total loops=1 deepest_loop=1 loop_blocks=1 loop_calls=1 loop_invariants=1 loop_globals=1 self_loops=1{{$}}
; LOOP: {{^}}leaf loops=0 deepest_loop=0 loop_blocks=0 loop_calls=0 loop_invariants=0 loop_globals=0 self_loops=0{{$}}
target triple = "x86_64-unknown-linux-gnu"
@data = external global i64
declare i64 @use(i64, i64)

define i64 @total(i64 %count) minsize optsize nounwind {
entry:
  br label %loop
loop:
  %turn = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %more, %loop ]
  %same = load i64, ptr @data
  %used = call i64 @use(i64 %turn, i64 300)
  %more = add i64 %sum, %used
  %next = add i64 %turn, 1
  %done = icmp eq i64 %next, %count
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %more
}

define i64 @leaf(i64 %x) optsize nounwind {
  ret i64 %x
}
