// Every way to start work on the GPU, and every way to wait for it.
#include "enforce/flight.hpp"
#include "enforce/gate.hpp"
#include "enforce/overhead.hpp"

namespace aliquot::enforce {
namespace {

// The program asked whether something is over, and it is.
CUresult asked(CUresult r, CUstream stream) {
  if (r == kSuccess && grant_wanted()) {
    gate_synchronized(stream, false, kNoGpu, true);
    pools_waited(stream, false);
  }
  return r;
}

}  // namespace

ALIQUOT_HOOK cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                            unsigned by, unsigned bz, unsigned shared, CUstream stream,
                            void** params, void** extra) {
  bind();
  return pass_gate(stream, launch_kernel, [=] {
    return with_code(f, [=] {
      return real::cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
    });
  });
}

ALIQUOT_HOOK cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                 unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                 void** params, void** extra) {
  bind();
  return pass_gate(own_stream(stream), launch_kernel, [=] {
    return with_code(f, [=] {
      return real::cuLaunchKernel_ptsz(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
    });
  });
}

ALIQUOT_HOOK cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params,
                              void** extra) {
  bind();
  return pass_gate(config == nullptr ? nullptr : config->hStream, launch_kernel, [=] {
    return with_code(f, [=] { return real::cuLaunchKernelEx(config, f, params, extra); });
  });
}

ALIQUOT_HOOK cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** params,
                                   void** extra) {
  bind();
  return pass_gate(own_stream(config == nullptr ? nullptr : config->hStream), launch_kernel, [=] {
    return with_code(f, [=] { return real::cuLaunchKernelEx_ptsz(config, f, params, extra); });
  });
}

ALIQUOT_HOOK cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                       unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                       CUstream stream, void** params) {
  bind();
  return pass_gate(stream, launch_kernel, [=] {
    return with_code(f, [=] {
      return real::cuLaunchCooperativeKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params);
    });
  });
}

ALIQUOT_HOOK cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                            unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                            CUstream stream, void** params) {
  bind();
  return pass_gate(own_stream(stream), launch_kernel, [=] {
    return with_code(f, [=] {
      return real::cuLaunchCooperativeKernel_ptsz(f, gx, gy, gz, bx, by, bz, shared, stream,
                                                  params);
    });
  });
}

ALIQUOT_HOOK cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count,
                                                  unsigned flags) {
  bind();
  CUstream first = launches == nullptr || count == 0 ? nullptr : launches[0].hStream;
  return pass_gate(first, launch_kernel, [=] {
    return real::cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
  });
}

ALIQUOT_HOOK cuLaunch(CUfunction f) {
  bind();
  return pass_gate(nullptr, launch_kernel,
                   [=] { return with_code(f, [=] { return real::cuLaunch(f); }); });
}

ALIQUOT_HOOK cuLaunchGrid(CUfunction f, int width, int height) {
  bind();
  return pass_gate(nullptr, launch_kernel, [=] { return real::cuLaunchGrid(f, width, height); });
}

ALIQUOT_HOOK cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
  bind();
  return pass_gate(stream, launch_kernel,
                   [=] { return real::cuLaunchGridAsync(f, width, height, stream); });
}

ALIQUOT_HOOK cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  const bool ours = governed();
  return pass_gate(stream, launch_graph, [=] {
    return ours ? with_graph_memory(exec, real::cuGraphLaunch, stream)
                : real::cuGraphLaunch(exec, stream);
  });
}

ALIQUOT_HOOK cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  const bool ours = governed();
  return pass_gate(own_stream(stream), launch_graph, [=] {
    return ours ? with_graph_memory(exec, real::cuGraphLaunch_ptsz, stream)
                : real::cuGraphLaunch_ptsz(exec, stream);
  });
}

ALIQUOT_HOOK cuStreamSynchronize(CUstream stream) {
  bind();
  return pass_wait(stream, false, [=] { return real::cuStreamSynchronize(stream); });
}

ALIQUOT_HOOK cuStreamSynchronize_ptsz(CUstream stream) {
  bind();
  return pass_wait(own_stream(stream), false,
                   [=] { return real::cuStreamSynchronize_ptsz(stream); });
}

ALIQUOT_HOOK cuStreamQuery(CUstream stream) {
  bind();
  return asked(real::cuStreamQuery(stream), stream);
}

ALIQUOT_HOOK cuStreamQuery_ptsz(CUstream stream) {
  bind();
  return asked(real::cuStreamQuery_ptsz(stream), own_stream(stream));
}

ALIQUOT_HOOK cuCtxSynchronize() {
  bind();
  return pass_wait(nullptr, true, [] { return real::cuCtxSynchronize(); });
}

ALIQUOT_HOOK cuCtxSynchronize_v2(CUcontext context) {
  bind();
  CUcontext current = nullptr;
  (void)real::cuCtxGetCurrent(&current);
  const bool own_context = current == context;
  return pass_wait(own_context ? nullptr : kNoStream, own_context,
                   [=] { return real::cuCtxSynchronize_v2(context); });
}

ALIQUOT_HOOK cuEventSynchronize(CUevent event) {
  bind();
  return pass_wait(kNoStream, false, [=] { return real::cuEventSynchronize(event); });
}

ALIQUOT_HOOK cuEventQuery(CUevent event) {
  bind();
  return asked(real::cuEventQuery(event), kNoStream);
}

ALIQUOT_HOOK cuStreamDestroy(CUstream stream) {
  bind();
  flight_stream_gone(stream);
  pools_stream_gone(stream);
  graphs_stream_gone(stream);
  bindings_stream_gone(stream);
  return real::cuStreamDestroy(stream);
}

ALIQUOT_HOOK cuStreamDestroy_v2(CUstream stream) {
  bind();
  flight_stream_gone(stream);
  pools_stream_gone(stream);
  graphs_stream_gone(stream);
  bindings_stream_gone(stream);
  return real::cuStreamDestroy_v2(stream);
}

}  // namespace aliquot::enforce
