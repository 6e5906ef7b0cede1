; A function in the most executed 99 percent of the profile is left to LLVM, and its calls are no questions.
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:always -mlgokit-keep-hot=99 -mlgokit-log=%t.log -S %s | FileCheck %s --check-prefix=KEPT
; RUN: %tool log %t.log inlining_default inlining_decision | FileCheck %s --check-prefix=LOG
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:always -mlgokit-keep-hot=10 -S %s | FileCheck %s --check-prefix=ALWAYS
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-keep-hot=10 -S %s | FileCheck %s --check-prefix=HOTTEST
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -S %s | FileCheck %s --check-prefix=NEVER
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:always -mlgokit-keep-hot=100 -S %s 2>&1 | FileCheck %s --check-prefix=MOST

; LLVM inlines in @hot, where the call is hot, and not in @hot_inside, where it is less so.
; KEPT-LABEL: define i32 @hot_inside(
; KEPT: call {{.*}}@large
; KEPT-LABEL: define i32 @cold(
; KEPT-NOT: call {{.*}}@large
; LOG: module inlining_default=0 inlining_decision=1
; LOG-NOT: module
; ALWAYS-NOT: call {{.*}}@large
; HOTTEST-LABEL: define i32 @hot(
; HOTTEST-NOT: call {{.*}}@large
; HOTTEST: define i32 @hot_inside(
; NEVER-LABEL: define i32 @hot(
; NEVER: call {{.*}}@large
; NEVER-LABEL: define i32 @hot_inside(
; MOST: -mlgokit-keep-hot or MLGOKIT_KEEP_HOT: expected at most 99.9999 percent
declare i32 @get(i32)
define i32 @large(i32 %x) minsize optsize nounwind !prof !20 {
  %a = call i32 @get(i32 %x)
  %b = call i32 @get(i32 %a)
  %c = call i32 @get(i32 %b)
  %d = call i32 @get(i32 %c)
  ret i32 %d
}
define i32 @hot(i32 %x) minsize optsize nounwind !prof !21 {
  %a = call i32 @large(i32 %x)
  ret i32 %a
}
; Entered once, and its loop is in the most executed part.
define i32 @hot_inside(i32 %x) minsize optsize nounwind !prof !22 {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %a, %loop ]
  %a = call i32 @large(i32 %i)
  %again = icmp slt i32 %a, %x
  br i1 %again, label %loop, label %out, !prof !23
out:
  ret i32 %a
}
define i32 @cold(i32 %x) minsize optsize nounwind !prof !22 {
  %a = call i32 @large(i32 %x)
  ret i32 %a
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"ProfileSummary", !1}
!1 = !{!2, !3, !4, !5, !6, !7, !8, !9}
!2 = !{!"ProfileFormat", !"InstrProf"}
!3 = !{!"TotalCount", i64 10000}
!4 = !{!"MaxCount", i64 9000}
!5 = !{!"MaxInternalCount", i64 1000}
!6 = !{!"MaxFunctionCount", i64 9000}
!7 = !{!"NumCounts", i64 5}
!8 = !{!"NumFunctions", i64 4}
!9 = !{!"DetailedSummary", !10}
!10 = !{!11, !12, !13}
!11 = !{i32 100000, i64 9000, i32 1}
!12 = !{i32 990000, i64 900, i32 2}
!13 = !{i32 999999, i64 1, i32 5}
!20 = !{!"function_entry_count", i64 1}
!21 = !{!"function_entry_count", i64 9000}
!22 = !{!"function_entry_count", i64 1}
!23 = !{!"branch_weights", i32 1000, i32 1}
