// A GPU as NVML names it: "GPU-" or, for a MIG slice, "MIG-", and the digits of the 16 bytes that
// CUDA has.
#pragma once

namespace aliquot::enforce {

inline constexpr int kUuidText = 41;  // with the end

inline void uuid_text(const unsigned char* bytes, bool slice, char* text) {
  const char* prefix = slice ? "MIG-" : "GPU-";
  while (*prefix != '\0') *text++ = *prefix++;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *text++ = '-';
    *text++ = "0123456789abcdef"[bytes[i] >> 4];
    *text++ = "0123456789abcdef"[bytes[i] & 15];
  }
  *text = '\0';
}

}  // namespace aliquot::enforce
