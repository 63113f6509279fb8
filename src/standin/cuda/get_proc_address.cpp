// cuGetProcAddress in both of its forms: the old one reports a missing name as an error, the new
// one by its status.
#include "standin/cuda/driver.hpp"
#include "standin/cuda/exports.hpp"

namespace aliquot::standin {

CU_API cuGetProcAddress_v2(const char* symbol, void** out, int version, std::uint64_t flags,
                           int* status) {
  if (status != nullptr) return look_up_export(symbol, out, version, flags, status);
  const CUresult r = look_up_export(symbol, out, version, flags, nullptr);
  return r == kSuccess && *out == nullptr ? kNotFound : r;
}

CU_API cuGetProcAddress(const char* symbol, void** out, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(symbol, out, version, flags, nullptr);
}

}  // namespace aliquot::standin
