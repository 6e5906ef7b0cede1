; A small callee and a large one, each called twice, and a caller for each kind of call.
target triple = "x86_64-pc-linux-gnu"

declare i32 @get(i32)

define internal i32 @small(i32 %x) minsize optsize nounwind {
  %a = call i32 @get(i32 %x)
  ret i32 %a
}

define internal i32 @large(i32 %x) minsize optsize nounwind {
  %a = call i32 @get(i32 %x)
  %b = call i32 @get(i32 %a)
  %c = call i32 @get(i32 %b)
  %d = call i32 @get(i32 %c)
  %e = call i32 @get(i32 %d)
  %f = call i32 @get(i32 %e)
  ret i32 %f
}

define i32 @first(i32 %x) minsize optsize nounwind {
  %a = call i32 @small(i32 %x)
  %b = call i32 @large(i32 %a)
  ret i32 %b
}

define i32 @second(i32 %x) minsize optsize nounwind {
  %a = call i32 @large(i32 %x)
  %b = call i32 @small(i32 %a)
  ret i32 %b
}
