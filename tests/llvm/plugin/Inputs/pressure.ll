; More values live across a call, in a loop, than there are registers.
target triple = "x86_64-unknown-linux-gnu"

declare i64 @use(i64)

define i64 @busy(ptr %from, i64 %count) minsize optsize nounwind {
entry:
  %start0 = load volatile i64, ptr %from
  %start1 = load volatile i64, ptr %from
  %start2 = load volatile i64, ptr %from
  %start3 = load volatile i64, ptr %from
  %start4 = load volatile i64, ptr %from
  %start5 = load volatile i64, ptr %from
  %start6 = load volatile i64, ptr %from
  %start7 = load volatile i64, ptr %from
  %start8 = load volatile i64, ptr %from
  %start9 = load volatile i64, ptr %from
  %start10 = load volatile i64, ptr %from
  %start11 = load volatile i64, ptr %from
  %start12 = load volatile i64, ptr %from
  %start13 = load volatile i64, ptr %from
  %start14 = load volatile i64, ptr %from
  %start15 = load volatile i64, ptr %from
  %start16 = load volatile i64, ptr %from
  %start17 = load volatile i64, ptr %from
  %start18 = load volatile i64, ptr %from
  %start19 = load volatile i64, ptr %from
  br label %loop

loop:
  %turn = phi i64 [ 0, %entry ], [ %next, %loop ]
  %v0 = phi i64 [ %start0, %entry ], [ %w0, %loop ]
  %v1 = phi i64 [ %start1, %entry ], [ %w1, %loop ]
  %v2 = phi i64 [ %start2, %entry ], [ %w2, %loop ]
  %v3 = phi i64 [ %start3, %entry ], [ %w3, %loop ]
  %v4 = phi i64 [ %start4, %entry ], [ %w4, %loop ]
  %v5 = phi i64 [ %start5, %entry ], [ %w5, %loop ]
  %v6 = phi i64 [ %start6, %entry ], [ %w6, %loop ]
  %v7 = phi i64 [ %start7, %entry ], [ %w7, %loop ]
  %v8 = phi i64 [ %start8, %entry ], [ %w8, %loop ]
  %v9 = phi i64 [ %start9, %entry ], [ %w9, %loop ]
  %v10 = phi i64 [ %start10, %entry ], [ %w10, %loop ]
  %v11 = phi i64 [ %start11, %entry ], [ %w11, %loop ]
  %v12 = phi i64 [ %start12, %entry ], [ %w12, %loop ]
  %v13 = phi i64 [ %start13, %entry ], [ %w13, %loop ]
  %v14 = phi i64 [ %start14, %entry ], [ %w14, %loop ]
  %v15 = phi i64 [ %start15, %entry ], [ %w15, %loop ]
  %v16 = phi i64 [ %start16, %entry ], [ %w16, %loop ]
  %v17 = phi i64 [ %start17, %entry ], [ %w17, %loop ]
  %v18 = phi i64 [ %start18, %entry ], [ %w18, %loop ]
  %v19 = phi i64 [ %start19, %entry ], [ %w19, %loop ]
  %used = call i64 @use(i64 %turn)
  %m0 = mul i64 %v0, %v3
  %w0 = add i64 %m0, %used
  %m1 = mul i64 %v1, %v10
  %w1 = add i64 %m1, %used
  %m2 = mul i64 %v2, %v17
  %w2 = add i64 %m2, %used
  %m3 = mul i64 %v3, %v4
  %w3 = add i64 %m3, %used
  %m4 = mul i64 %v4, %v11
  %w4 = add i64 %m4, %used
  %m5 = mul i64 %v5, %v18
  %w5 = add i64 %m5, %used
  %m6 = mul i64 %v6, %v5
  %w6 = add i64 %m6, %used
  %m7 = mul i64 %v7, %v12
  %w7 = add i64 %m7, %used
  %m8 = mul i64 %v8, %v19
  %w8 = add i64 %m8, %used
  %m9 = mul i64 %v9, %v6
  %w9 = add i64 %m9, %used
  %m10 = mul i64 %v10, %v13
  %w10 = add i64 %m10, %used
  %m11 = mul i64 %v11, %v0
  %w11 = add i64 %m11, %used
  %m12 = mul i64 %v12, %v7
  %w12 = add i64 %m12, %used
  %m13 = mul i64 %v13, %v14
  %w13 = add i64 %m13, %used
  %m14 = mul i64 %v14, %v1
  %w14 = add i64 %m14, %used
  %m15 = mul i64 %v15, %v8
  %w15 = add i64 %m15, %used
  %m16 = mul i64 %v16, %v15
  %w16 = add i64 %m16, %used
  %m17 = mul i64 %v17, %v2
  %w17 = add i64 %m17, %used
  %m18 = mul i64 %v18, %v9
  %w18 = add i64 %m18, %used
  %m19 = mul i64 %v19, %v16
  %w19 = add i64 %m19, %used
  %next = add i64 %turn, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end

end:
  %sum1 = xor i64 %w0, %w1
  %sum2 = xor i64 %sum1, %w2
  %sum3 = xor i64 %sum2, %w3
  %sum4 = xor i64 %sum3, %w4
  %sum5 = xor i64 %sum4, %w5
  %sum6 = xor i64 %sum5, %w6
  %sum7 = xor i64 %sum6, %w7
  %sum8 = xor i64 %sum7, %w8
  %sum9 = xor i64 %sum8, %w9
  %sum10 = xor i64 %sum9, %w10
  %sum11 = xor i64 %sum10, %w11
  %sum12 = xor i64 %sum11, %w12
  %sum13 = xor i64 %sum12, %w13
  %sum14 = xor i64 %sum13, %w14
  %sum15 = xor i64 %sum14, %w15
  %sum16 = xor i64 %sum15, %w16
  %sum17 = xor i64 %sum16, %w17
  %sum18 = xor i64 %sum17, %w18
  %sum19 = xor i64 %sum18, %w19
  ret i64 %sum19
}
