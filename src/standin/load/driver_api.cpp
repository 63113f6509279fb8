#include "standin/load/driver_api.hpp"

#include <dlfcn.h>

namespace aliquot::standin {
namespace {

template <class Function>
bool find(void* library, const char* name, Function* out, std::string* why) {
  void* address = dlsym(library, name);
  if (address == nullptr) {
    *why = std::string("libcuda.so.1 has no ") + name;
    return false;
  }
  *out = reinterpret_cast<Function>(address);
  return true;
}

}  // namespace

bool DriverApi::load(std::string* why) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    const char* error = dlerror();
    *why = std::string(error == nullptr ? "libcuda.so.1 not found" : error) +
           "; is a driver, or the stand-in's directory, on the library path?";
    return false;
  }
  const auto get = [&](const char* name, auto* out) { return find(library, name, out, why); };
  return get("cuInit", &init) && get("cuDeviceGetCount", &device_get_count) &&
         get("cuDeviceGetName", &device_get_name) &&
         get("cuDeviceTotalMem_v2", &device_total_mem) &&
         get("cuDeviceGetAttribute", &device_get_attribute) &&
         get("cuDevicePrimaryCtxRetain", &primary_retain) &&
         get("cuCtxSetCurrent", &ctx_set_current) && get("cuCtxSynchronize", &ctx_synchronize) &&
         get("cuMemGetInfo_v2", &mem_get_info) && get("cuMemAlloc_v2", &mem_alloc) &&
         get("cuMemAllocPitch_v2", &mem_alloc_pitch) &&
         get("cuMemAllocManaged", &mem_alloc_managed) && get("cuMemAllocAsync", &mem_alloc_async) &&
         get("cuMemCreate", &mem_create) && get("cuMemRelease", &mem_release) &&
         get("cuMemGetAllocationGranularity", &mem_granularity) &&
         get("cuMemAddressReserve", &mem_address_reserve) &&
         get("cuMemAddressFree", &mem_address_free) && get("cuMemMap", &mem_map) &&
         get("cuMemSetAccess", &mem_set_access) && get("cuArrayCreate_v2", &array_create) &&
         get("cuMemsetD8_v2", &memset_d8) && get("cuMemcpyHtoD_v2", &memcpy_to_device) &&
         get("cuMemcpyDtoH_v2", &memcpy_to_host) && get("cuModuleLoadData", &module_load_data) &&
         get("cuModuleGetFunction", &module_get_function) &&
         get("cuLaunchKernel", &launch_kernel) && get("cuEventCreate", &event_create) &&
         get("cuEventRecord", &event_record) && get("cuEventSynchronize", &event_synchronize) &&
         get("cuEventElapsedTime", &event_elapsed) && get("cuGetErrorName", &get_error_name) &&
         get("cuGetErrorString", &get_error_string);
}

std::string DriverApi::describe(CUresult code) const {
  const char* name = nullptr;
  const char* text = nullptr;
  get_error_name(code, &name);
  get_error_string(code, &text);
  return std::string(name == nullptr ? "unknown error" : name) + " (" + std::to_string(code) +
         "): " + (text == nullptr ? "?" : text);
}

}  // namespace aliquot::standin
