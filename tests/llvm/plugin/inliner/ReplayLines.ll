; Decisions are written as LLVM's inline replay reads them, with the chain of call sites; what a line cannot hold is left
; out. A compiler without the plugin that replays them makes the same code, against its own decisions.
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-log=%t.log -mlgokit-replay-lines=%t.none -disable-output %s
; RUN: FileCheck %s --check-prefix=NONE < %t.none
; RUN: %tool decisions %t.table %t.log
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-decisions=%t.table -mlgokit-replay-lines=%t.lines -S %s | sed -e 's/, !mlgokit.site ![0-9]*//' -e '/^!/d' -e '/^$/d' > %t.tuned
; RUN: FileCheck %s --check-prefix=LINES < %t.lines
; RUN: opt -passes='default<%Oz>' -cgscc-inline-replay=%t.lines -cgscc-inline-replay-scope=Module -cgscc-inline-replay-fallback=Original -S %s | sed -e '/^!/d' -e '/^$/d' > %t.replayed
; RUN: FileCheck %s < %t.replayed
; RUN: opt -passes='default<%Oz>' -S %s | FileCheck %s --check-prefix=PLAIN
; RUN: not opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-replay-lines=%t/nowhere/lines -disable-output %s 2>&1 | FileCheck %s --check-prefix=NOWHERE

; NONE-NOT: inlined into 'unlocated'
; NONE: mlgokit: 'large' will not be inlined into 'middle' at callsite middle:2:5;
; NONE: mlgokit: 'middle' will not be inlined into '_Z5outerv' at callsite _Z5outerv:1:3.1;
; NONE-NOT: inlined
; LINES: mlgokit: 'large' inlined into 'middle' at callsite middle:2:5;
; CHECK-LABEL: define {{.*}}@_Z5outerv
; CHECK-NOT: call {{.*}}@{{large|middle}}
; CHECK-LABEL: define {{.*}}@unlocated
; CHECK: call {{.*}}@large
; PLAIN: call {{.*}}@large
; NOWHERE: error: mlgokit: replay lines {{.*}}nowhere/lines: cannot be written:
declare i32 @get(i32)

define internal i32 @large(i32 %x) minsize optsize nounwind !dbg !10 {
  %a = call i32 @get(i32 %x), !dbg !11
  %b = call i32 @get(i32 %a), !dbg !11
  %c = call i32 @get(i32 %b), !dbg !11
  %d = call i32 @get(i32 %c), !dbg !11
  %e = call i32 @get(i32 %d), !dbg !11
  ret i32 %e, !dbg !11
}

define internal i32 @middle(i32 %x) minsize optsize nounwind !dbg !12 {
  %a = call i32 @large(i32 %x), !dbg !13
  ret i32 %a, !dbg !13
}

define i32 @_Z5outerv(i32 %x) minsize optsize nounwind !dbg !14 {
  %a = call i32 @middle(i32 %x), !dbg !15
  ret i32 %a, !dbg !15
}

define i32 @unlocated(i32 %x) minsize optsize nounwind {
  %a = call i32 @large(i32 %x)
  %b = call i32 @"odd'\0Aname"(i32 %a)
  ret i32 %b
}

define internal i32 @"odd'\0Aname"(i32 %x) minsize optsize nounwind !dbg !17 {
  %a = call i32 @large(i32 %x), !dbg !18
  ret i32 %a, !dbg !18
}

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "a.c", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !DISubroutineType(types: !{})
!10 = distinct !DISubprogram(name: "large", file: !1, line: 1, type: !3, unit: !0, spFlags: DISPFlagDefinition)
!11 = !DILocation(line: 2, column: 1, scope: !10)
!12 = distinct !DISubprogram(name: "middle", file: !1, line: 10, type: !3, unit: !0, spFlags: DISPFlagDefinition)
!13 = !DILocation(line: 12, column: 5, scope: !12)
!14 = distinct !DISubprogram(name: "outer", linkageName: "_Z5outerv", file: !1, line: 20, type: !3, unit: !0, spFlags: DISPFlagDefinition)
!15 = !DILocation(line: 21, column: 3, scope: !16)
!16 = !DILexicalBlockFile(scope: !14, file: !1, discriminator: 2)
!17 = distinct !DISubprogram(name: "odd", file: !1, line: 30, type: !3, unit: !0, spFlags: DISPFlagDefinition)
!18 = !DILocation(line: 31, column: 3, scope: !17)
