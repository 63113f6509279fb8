#include "slurm/admin_comment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "slurm/asked_words.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::string_view kUsed = "used ";

std::string_view mark_of(Remark remark) {
  return remark == Remark::escape ? "; escape on " : "; broken GPU on ";
}

std::string_view trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

struct UsedOn {
  Used used;
  std::string_view node;
};

// `used 12.5 s 7900M on n1`
std::optional<UsedOn> parse_used(std::string_view text) {
  text = trim(text);
  if (!text.starts_with(kUsed)) return std::nullopt;
  const auto words = split(text, ' ');
  if (words.size() != 6 || words[2] != "s" || words[4] != "on" || !words[3].ends_with('M')) {
    return std::nullopt;
  }
  const auto tenths = parse_decimal(words[1], 10);
  const auto memory = parse_digits(words[3].substr(0, words[3].size() - 1));
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (!tenths || !memory || *tenths > kMost || *memory > kMost / 1024) return std::nullopt;
  return UsedOn{{Millis(*tenths * 100), mib(*memory)}, words[5]};
}

}  // namespace

std::optional<std::string> asked_words(const std::string& admin_comment) {
  const std::string_view words = find_asked_words(admin_comment);
  return words.empty() ? std::nullopt : std::optional(std::string(words));
}

std::string add_remark(const std::string& admin_comment, Remark remark, const std::string& node) {
  if (remarked_on(admin_comment, remark)) return admin_comment;
  return fmt::format("{}{}{}", admin_comment, mark_of(remark), node);
}

std::optional<std::string> remarked_on(const std::string& admin_comment, Remark remark) {
  const std::size_t at = admin_comment.find(mark_of(remark));
  if (at == std::string::npos) return std::nullopt;
  const std::string rest = admin_comment.substr(at + mark_of(remark).size());
  return rest.substr(0, rest.find(';'));
}

std::string set_used(const std::string& admin_comment, const std::string& node, const Used& used) {
  std::string text;
  for (const std::string_view part : split(admin_comment, ';')) {
    const auto said = parse_used(part);
    if (said && said->node == node) continue;
    text += text.empty() && part.empty() ? "" : fmt::format("{}{}", text.empty() ? "" : ";", part);
  }
  const std::int64_t tenths = (used.gpu_time.value() + 50) / 100;
  return fmt::format("{}{}{}{}.{} s {}M on {}", text, text.empty() ? "" : "; ", kUsed, tenths / 10,
                     tenths % 10, used.memory_peak / mib(1), node);
}

std::optional<Used> used_in(const std::string& admin_comment) {
  std::optional<Used> all;
  for (const std::string_view part : split(admin_comment, ';')) {
    const auto said = parse_used(part);
    if (!said) continue;
    if (!all) all.emplace();
    all->gpu_time += said->used.gpu_time;
    all->memory_peak = std::max(all->memory_peak, said->used.memory_peak);
  }
  return all;
}

}  // namespace aliquot::slurm
