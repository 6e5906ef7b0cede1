; Instructions are counted at each question, once they are selected: before, there are none, and after allocation no
; virtual registers. The loop jumps back once, and to nothing else but the end.
; RUN: llc -load %plugin -mlgokit-pass-log=%t.log -O2 -o %t.s %s
; RUN: %tool log %t.log pass:consthoist machine_instructions machine_blocks > %t.first
; RUN: FileCheck %s --check-prefix=FIRST < %t.first
; RUN: %tool log %t.log pass:machine-cse machine_blocks machine_phis machine_calls jumps_back virtual_registers > %t.selected
; RUN: FileCheck %s --check-prefix=SELECTED < %t.selected
; RUN: %tool log %t.log pass:block-placement machine_blocks machine_phis machine_calls machine_returns conditional_jumps jumps_back virtual_registers > %t.last
; RUN: FileCheck %s --check-prefix=LAST < %t.last

; FIRST: total pass:consthoist=1 machine_instructions=0 machine_blocks=0{{$}}
; SELECTED: total pass:machine-cse=1 machine_blocks={{[34]}} machine_phis=2 machine_calls=1 jumps_back=1 virtual_registers={{[1-9][0-9]*$}}
; LAST: total pass:block-placement=1 machine_blocks={{[34]}} machine_phis=0 machine_calls=1 machine_returns=1 conditional_jumps=1 jumps_back=1 virtual_registers=0{{$}}
target triple = "x86_64-unknown-linux-gnu"
declare i64 @use(i64, i64)

define i64 @total(i64 %count) minsize optsize nounwind {
entry:
  br label %loop
loop:
  %turn = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %more, %loop ]
  %used = call i64 @use(i64 %turn, i64 300)
  %more = add i64 %sum, %used
  %next = add i64 %turn, 1
  %done = icmp eq i64 %next, %count
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %more
}
