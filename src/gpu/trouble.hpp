// What is wrong with a GPU that must get no more jobs, as a short word that goes where a sentence
// does not (a sample, a node's `extra`): "lost", "xid79", "ecc". Empty: nothing is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace aliquot::gpu {

inline constexpr std::string_view kTroubleLost = "lost";      // the driver says so
inline constexpr std::string_view kTroubleSilent = "silent";  // or says nothing that helps
inline constexpr std::string_view kTroubleEcc = "ecc";
inline constexpr std::string_view kTroubleRows = "rows";

// The word for this Xid, a number that the driver reports errors by; empty for those that are no
// fault of the GPU: a program's illegal access (13, 31), its end (43, 45), a corrected error.
std::string xid_trouble(std::uint64_t xid);

// Whether it is such a word: a few letters and digits.
bool is_trouble(std::string_view word);
// For people, without an end: "Xid 79, it has fallen off the bus".
std::string trouble_text(std::string_view word);

}  // namespace aliquot::gpu
