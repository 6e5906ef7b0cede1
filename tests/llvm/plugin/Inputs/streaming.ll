; Two callees of the same attributes, of which a streaming caller may take one alone: NEON does not run in its mode.
target triple = "aarch64-unknown-linux-gnu"

declare <4 x i32> @llvm.aarch64.neon.sqabs.v4i32(<4 x i32>)

define internal void @plain(ptr %p) #0 {
  %v = load <4 x i32>, ptr %p
  store volatile <4 x i32> %v, ptr %p
  ret void
}
define internal void @neon(ptr %p) #0 {
  %v = load <4 x i32>, ptr %p
  %w = call <4 x i32> @llvm.aarch64.neon.sqabs.v4i32(<4 x i32> %v)
  store volatile <4 x i32> %w, ptr %p
  ret void
}
define void @caller(ptr %p) #1 {
  call void @plain(ptr %p) #2
  call void @neon(ptr %p) #2
  ret void
}
attributes #0 = { minsize optsize nounwind "target-features"="+neon,+sme" }
attributes #1 = { minsize optsize nounwind "target-features"="+neon,+sme" "aarch64_pstate_sm_enabled" }
attributes #2 = { nounwind }
