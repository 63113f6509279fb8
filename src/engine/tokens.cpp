#include "engine/tokens.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace aliquot::engine {
namespace {

// Under which the store keeps them: a line each, "TEXT UID UNTIL".
constexpr const char* kTokensNote = "tokens";
constexpr std::size_t kTextSize = 64;
constexpr std::int64_t kMostPerUser = 16;
constexpr Millis kLongestToken = days(366);

std::optional<std::string> random_text() {
  std::array<unsigned char, kTextSize / 2> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return std::nullopt;
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

void Tokens::save() {
  std::string text;
  for (const Token& one : state_.tokens) {
    text += fmt::format("{} {} {}\n", one.text, one.uid, one.until);
  }
  state_.require(
      state_.store.save_note(kTokensNote, text.empty() ? std::nullopt : std::optional(text)));
}

Result<void> Tokens::read() {
  state_.tokens.clear();
  const auto note = TRY(state_.store.note(kTokensNote));
  if (!note) return {};
  for (const std::string_view line : split(*note, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() != 3 || words[0].size() != kTextSize) continue;
    const auto uid = parse_digits(words[1]);
    const auto until = parse_digits(words[2]);
    if (!uid || !until) continue;
    state_.tokens.push_back(
        {std::string(words[0]), Uid(static_cast<std::uint32_t>(*uid)), WallTime(*until)});
  }
  return {};
}

Answer<api::TokenInfo> Tokens::make(const Caller& caller, const api::TokenSpec& spec) {
  const Millis length = Millis(spec.for_s > kLongestToken / seconds(1) ? 0 : spec.for_s * 1'000);
  if (length <= Millis(0)) {
    return refuse(Why::bad_time, "a token lasts for a second at least and for a year at most");
  }
  auto text = random_text();
  if (!text) return refuse(Why::try_again, "the kernel has no random bytes: try again");
  const WallTime now = state_.clock.wall();
  auto& all = state_.tokens;
  std::erase_if(all, [&](const Token& one) { return one.until <= now; });
  const auto mine = [&](const Token& one) { return one.uid == caller.uid; };
  while (std::ranges::count_if(all, mine) >= kMostPerUser) {
    all.erase(std::ranges::find_if(all, mine));
  }
  all.push_back({std::move(*text), caller.uid, now + length});
  save();
  return api::TokenInfo{
      .token = all.back().text, .expires_ms = all.back().until.ms(), .address = {}};
}

Answer<void> Tokens::revoke(const Caller& caller) {
  std::erase_if(state_.tokens, [&](const Token& one) { return one.uid == caller.uid; });
  save();
  return {};
}

std::optional<Uid> Tokens::user_of(std::string_view text) const {
  if (text.size() != kTextSize) return std::nullopt;
  const WallTime now = state_.clock.wall();
  std::optional<Uid> user;
  for (const Token& one : state_.tokens) {
    unsigned difference = 0;
    for (std::size_t i = 0; i < kTextSize; ++i) {
      difference |= static_cast<unsigned>(one.text[i] ^ text[i]);
    }
    if (difference == 0 && one.until > now) user = one.uid;
  }
  return user;
}

}  // namespace aliquot::engine
