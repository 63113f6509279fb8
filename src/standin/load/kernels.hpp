// The load program's kernels as PTX, which the driver compiles for whatever GPU it finds. The
// stand-in knows them by name (standin/cuda/kernel.hpp).
#pragma once

namespace aliquot::standin {

inline constexpr char kKernels[] = R"ptx(
.version 6.0
.target sm_50
.address_size 64

.visible .entry spin(.param .u64 iterations, .param .u64 out)
{
  .reg .u64 %left, %out;
  .reg .f32 %x;
  .reg .pred %more, %never;
  ld.param.u64 %left, [iterations];
  ld.param.u64 %out, [out];
  mov.f32 %x, 0f3F800000;
again:
  fma.rn.f32 %x, %x, %x, %x;
  sub.u64 %left, %left, 1;
  setp.ne.u64 %more, %left, 0;
  @%more bra again;
  setp.eq.f32 %never, %x, 0f40490FDB;
  @%never st.global.f32 [%out], %x;
  ret;
}

.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)
{
  .reg .u32 %i, %n, %block, %size, %thread;
  .reg .u64 %x, %y, %offset;
  .reg .f32 %a, %xi, %yi;
  .reg .pred %out;
  ld.param.u32 %n, [n];
  ld.param.f32 %a, [a];
  ld.param.u64 %x, [x];
  ld.param.u64 %y, [y];
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %i, %block, %size, %thread;
  setp.ge.u32 %out, %i, %n;
  @%out bra done;
  mul.wide.u32 %offset, %i, 4;
  add.u64 %x, %x, %offset;
  add.u64 %y, %y, %offset;
  ld.global.f32 %xi, [%x];
  ld.global.f32 %yi, [%y];
  fma.rn.f32 %yi, %a, %xi, %yi;
  st.global.f32 [%y], %yi;
done:
  ret;
}

.visible .entry fault(.param .u64 address)
{
  .reg .u64 %p;
  ld.param.u64 %p, [address];
  st.global.u64 [%p], %p;
  ret;
}
)ptx";

}  // namespace aliquot::standin
