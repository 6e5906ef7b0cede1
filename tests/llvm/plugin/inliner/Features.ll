; What the plugin itself sees of a call site: the callee's body, who else calls it, and whether it dies.
; RUN: opt -load-pass-plugin=%plugin -passes='default<%Oz>' -mlgokit-policy=:never -mlgokit-log=%t -disable-output %s
; RUN: %tool log %t callee_instructions callee_loads callee_stores callee_declared_calls callee_conditional_branches | FileCheck %s --check-prefix=BODY
; RUN: %tool log %t callee_arguments callee_is_local callee_is_discardable caller_is_local callee_call_sites callee_call_sites_in_caller callee_other_uses callee_dies callee_refused_before | FileCheck %s --check-prefix=USES
; RUN: %tool log %t call_is_invoke call_result_is_used call_global_arguments callee_name_length caller_name_length | FileCheck %s --check-prefix=CALL

; BODY: callee_instructions=7 callee_loads=1 callee_stores=1 callee_declared_calls=1 callee_conditional_branches=1
; BODY-NEXT: callee_instructions=7 {{.*}}
; BODY-NEXT: callee_instructions=1 callee_loads=0 callee_stores=0 callee_declared_calls=0 callee_conditional_branches=0
; USES: callee_arguments=2 callee_is_local=1 callee_is_discardable=0 caller_is_local=0 callee_call_sites=2 callee_call_sites_in_caller=2 callee_other_uses=0 callee_dies=0 callee_refused_before=0
; USES-NEXT: callee_refused_before=1
; USES-NEXT: callee_is_local=0 {{.*}}callee_call_sites=1 callee_call_sites_in_caller=1 callee_other_uses=1 callee_dies=0 callee_refused_before=0
; CALL: call_is_invoke=0 call_result_is_used=0 call_global_arguments=1 callee_name_length=4 caller_name_length=6
; CALL: call_result_is_used=1 call_global_arguments=0 callee_name_length=5 caller_name_length=6
@variable = global i32 0
@taken = global ptr @other
declare void @get(i32)
define internal void @body(ptr %p, i32 %x) minsize optsize {
  %a = load volatile i32, ptr %p
  %b = icmp eq i32 %a, %x
  br i1 %b, label %then, label %end
then:
  call void @get(i32 %a)
  store volatile i32 %x, ptr %p
  br label %end
end:
  ret void
}
define i32 @other(i32 %x) minsize optsize {
  ret i32 %x
}
define i32 @caller(ptr %p, i32 %x) minsize optsize {
  call void @body(ptr @variable, i32 1)
  call void @body(ptr %p, i32 %x)
  %a = call i32 @other(i32 %x)
  ret i32 %a
}
