// The driver functions the load program calls, found at run time in whatever libcuda.so.1 the
// loader finds: a real driver or the stand-in. Nothing of CUDA is needed to build it.
#pragma once

#include <string>

#include "standin/abi/cuda.hpp"

namespace aliquot::standin {

struct DriverApi {
  CUresult (*init)(unsigned);
  CUresult (*device_get_count)(int*);
  CUresult (*device_get_name)(char*, int, CUdevice);
  CUresult (*device_total_mem)(std::size_t*, CUdevice);
  CUresult (*device_get_attribute)(int*, int, CUdevice);
  CUresult (*primary_retain)(CUcontext*, CUdevice);
  CUresult (*ctx_set_current)(CUcontext);
  CUresult (*ctx_synchronize)();
  CUresult (*mem_get_info)(std::size_t*, std::size_t*);
  CUresult (*mem_alloc)(CUdeviceptr*, std::size_t);
  CUresult (*mem_alloc_pitch)(CUdeviceptr*, std::size_t*, std::size_t, std::size_t, unsigned);
  CUresult (*mem_alloc_managed)(CUdeviceptr*, std::size_t, unsigned);
  CUresult (*mem_alloc_async)(CUdeviceptr*, std::size_t, CUstream);
  CUresult (*mem_create)(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*,
                         unsigned long long);
  CUresult (*mem_release)(CUmemGenericAllocationHandle);
  CUresult (*mem_granularity)(std::size_t*, const CUmemAllocationProp*, int);
  CUresult (*mem_address_reserve)(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr,
                                  unsigned long long);
  CUresult (*mem_address_free)(CUdeviceptr, std::size_t);
  CUresult (*mem_map)(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle,
                      unsigned long long);
  CUresult (*mem_set_access)(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t);
  CUresult (*array_create)(CUarray*, const CUDA_ARRAY_DESCRIPTOR*);
  CUresult (*memset_d8)(CUdeviceptr, unsigned char, std::size_t);
  CUresult (*memcpy_to_device)(CUdeviceptr, const void*, std::size_t);
  CUresult (*memcpy_to_host)(void*, CUdeviceptr, std::size_t);
  CUresult (*module_load_data)(CUmodule*, const void*);
  CUresult (*module_get_function)(CUfunction*, CUmodule, const char*);
  CUresult (*launch_kernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream, void**, void**);
  CUresult (*event_create)(CUevent*, unsigned);
  CUresult (*event_record)(CUevent, CUstream);
  CUresult (*event_synchronize)(CUevent);
  CUresult (*event_elapsed)(float*, CUevent, CUevent);
  CUresult (*get_error_name)(CUresult, const char**);
  CUresult (*get_error_string)(CUresult, const char**);

  // Why not, when it cannot be loaded.
  [[nodiscard]] bool load(std::string* why);
  [[nodiscard]] std::string describe(CUresult code) const;
};

}  // namespace aliquot::standin
