; An option in a table holds for its function: the code is that of the option on the command line. One that the command
; line names keeps its value. An attribute without effect and an option that is not known change nothing.
; RUN: llc -O2 -o %t.plain %S/../Inputs/pressure.ll
; RUN: llc -O2 -misched=ilpmin -o %t.everywhere %S/../Inputs/pressure.ll
; RUN: not cmp %t.plain %t.everywhere
; RUN: %tool list %t.none
; RUN: MLGOKIT_TRIALS=%t.none MLGOKIT_TRIED=%t.functions llc -load %plugin -O2 -o %t.listed %S/../Inputs/pressure.ll
; RUN: %tool passes %t.table %t.functions busy -misched=ilpmin
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -o %t.set %S/../Inputs/pressure.ll
; RUN: cmp %t.everywhere %t.set
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -misched=default -o %t.kept %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.kept
; RUN: %tool passes %t.table %t.functions busy no-jump-tables -no-such-option=1
; RUN: llc -load %plugin -mlgokit-passes=%t.table -O2 -o %t.same %S/../Inputs/pressure.ll
; RUN: cmp %t.plain %t.same
