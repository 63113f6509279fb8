#include "gpu/trouble.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace aliquot::gpu {
namespace {

struct Xid {
  std::uint64_t number;
  std::string_view what;
};

// Those after which the GPU has to be reset or replaced.
constexpr std::array<Xid, 13> kFatal = {{
    {46, "it has stopped working"},
    {48, "an uncorrectable memory error"},
    {62, "its microcontroller has halted"},
    {64, "bad memory could not be replaced"},
    {74, "an NVLink error"},
    {79, "it has fallen off the bus"},
    {95, "an uncontained memory error"},
    {110, "a security fault"},
    {119, "its system processor does not answer"},
    {120, "its system processor has failed"},
    {136, "an NVLink could not be set up"},
    {140, "an unrecovered memory error"},
    {143, "it could not be initialised"},
}};
constexpr std::string_view kXidWord = "xid";
constexpr std::size_t kLongestWord = 16;

const Xid* find_xid(std::uint64_t number) {
  const auto* const found = std::ranges::find(kFatal, number, &Xid::number);
  return found == kFatal.end() ? nullptr : found;
}

}  // namespace

std::string xid_trouble(std::uint64_t xid) {
  return find_xid(xid) == nullptr ? "" : fmt::format("{}{}", kXidWord, xid);
}

bool is_trouble(std::string_view word) {
  return !word.empty() && word.size() <= kLongestWord && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
}

std::string trouble_text(std::string_view word) {
  if (word == kTroubleLost) return "the driver has lost it";
  if (word == kTroubleSilent) return "the driver cannot say how it is";
  if (word == kTroubleEcc) return "uncorrectable memory errors";
  if (word == kTroubleRows) return "bad memory could not be replaced";
  if (!word.starts_with(kXidWord)) return std::string(word);
  const auto number = parse_digits(word.substr(kXidWord.size()));
  const Xid* xid = number ? find_xid(static_cast<std::uint64_t>(*number)) : nullptr;
  return xid == nullptr ? std::string(word) : fmt::format("Xid {}, {}", xid->number, xid->what);
}

}  // namespace aliquot::gpu
