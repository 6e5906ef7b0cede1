; A policy that leaves out the pass which marks tail calls does so where the stack cannot grow with the input for that:
; not in a function that calls itself, or in circles, and not where the last call is by a pointer. A list of passes that
; changed something, by which a search goes, is without these.
; RUN: %tool policy %t.policy pass-selection pass:TailCallElimPass 0 -200
; RUN: opt -load-pass-plugin=%plugin -mlgokit-pass-policy=%t.policy -passes='default<%Oz>' -S %s | FileCheck %s
; RUN: MLGOKIT_CHANGED=%t.list opt -load-pass-plugin=%plugin -mlgokit-policy=:default -passes='default<%Oz>' -S %s -o %t.same
; RUN: FileCheck %s --check-prefix=LIST --input-file=%t.list
; RUN: FileCheck %s --check-prefix=NONE --input-file=%t.list

; CHECK-LABEL: define {{.*}}@plain(
; CHECK: {{ = call}} i32 @get
; CHECK-LABEL: define {{.*}}@itself(
; CHECK-NOT: call {{.*}}@itself
; CHECK-LABEL: define {{.*}}@even(
; CHECK: tail call {{.*}}@odd
; CHECK-LABEL: define {{.*}}@odd(
; CHECK: tail call {{.*}}@even
; CHECK-LABEL: define {{.*}}@by_pointer(
; CHECK: tail call {{.*}}%f
; CHECK-LABEL: define {{.*}}@before_the_end(
; CHECK: {{ = call}} {{.*}}%f
; LIST: function [[KEY:[0-9a-f]+]] plain
; LIST: changed [[KEY]] TailCallElimPass
; NONE: function [[KEY:[0-9a-f]+]] by_pointer
; NONE-NOT: changed [[KEY]] TailCallElimPass
target triple = "x86_64-unknown-linux-gnu"
define i32 @plain(i32 %x) minsize optsize {
  %a = call i32 @get(i32 %x)
  ret i32 %a
}
define i32 @itself(i32 %x, i32 %sum) minsize optsize {
  %is = icmp eq i32 %x, 0
  br i1 %is, label %done, label %more
more:
  %y = call i32 @get(i32 %x)
  %next = add i32 %sum, %y
  %less = add i32 %x, -1
  %r = call i32 @itself(i32 %less, i32 %next)
  ret i32 %r
done:
  ret i32 %sum
}
define i32 @even(i32 %x) noinline minsize optsize {
  %is = icmp eq i32 %x, 0
  br i1 %is, label %done, label %more
more:
  %less = add i32 %x, -1
  %r = call i32 @odd(i32 %less)
  br label %done
done:
  %found = phi i32 [ 1, %0 ], [ %r, %more ]
  ret i32 %found
}
define i32 @odd(i32 %x) noinline minsize optsize {
  %is = icmp eq i32 %x, 0
  br i1 %is, label %done, label %more
more:
  %less = add i32 %x, -1
  %r = call i32 @even(i32 %less)
  ret i32 %r
done:
  ret i32 0
}
define i32 @by_pointer(ptr %f, i32 %x) minsize optsize {
  %r = call i32 %f(i32 %x)
  ret i32 %r
}
define i32 @before_the_end(ptr %f, i32 %x) minsize optsize {
  %r = call i32 %f(i32 %x)
  %s = call i32 @get(i32 %r)
  ret i32 %s
}
declare i32 @get(i32)
