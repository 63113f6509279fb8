#include "slurm/plugins/spank/step_part.hpp"

#include <strings.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "slurm/asked_words.hpp"

namespace aliquot::spank {
namespace {

constexpr std::string_view kMemory = "--gpu-mem=";
constexpr std::string_view kShare = "--gpu-share=";

// An amount of one kind: "gpu-mem", "gpu-share", "mps", "shard", "gpu".
struct Amount {
  std::string kind;
  double number = 0;
  std::string word;  // as it was written
};

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// "12.5" in so many parts of one, rounded down; nothing: it is no number, or has more decimals.
std::optional<double> read_decimal(std::string_view text, std::int64_t parts,
                                   std::size_t decimals) {
  constexpr std::size_t kLongest = 18;
  const auto dot = text.find('.');
  const auto whole = text.substr(0, dot);
  const auto fraction = dot == text.npos ? "0" : text.substr(dot + 1);
  if (!is_digits(whole) || !is_digits(fraction) || fraction.size() > decimals) return std::nullopt;
  if (whole.size() > kLongest &&
      whole.size() - std::min(whole.find_first_not_of('0'), whole.size()) > kLongest) {
    return std::nullopt;
  }
  // With so many digits at most all of this is exact.
  __extension__ using Wide = __int128;
  const auto number = [](std::string_view digits) {
    return static_cast<Wide>(std::strtoll(std::string(digits).c_str(), nullptr, 10));
  };
  Wide ten_power = 1;
  for (std::size_t i = 0; i < fraction.size(); ++i) ten_power *= 10;
  const auto value = number(whole) * parts + number(fraction) * parts / ten_power;
  if (value > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return static_cast<double>(value);
}

// The bytes of 8G, 8GiB, 8gb, 1.5G, 512 (MiB), 100B, as base/size.hpp reads them.
std::optional<double> read_size(std::string_view text) {
  const auto end = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string unit(text.substr(end));
  std::ranges::transform(unit, unit.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  });
  constexpr std::size_t kDecimals = 9;
  if (unit == "b") {
    if (text.substr(0, end).find('.') != text.npos) return std::nullopt;
    return read_decimal(text.substr(0, end), 1, kDecimals);
  }
  const auto power = unit.empty() ? 1 : std::string_view("kmgt").find(unit[0]);
  const std::string_view rest =
      unit.empty() ? std::string_view() : std::string_view(unit).substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) {
    return std::nullopt;
  }
  return read_decimal(text.substr(0, end), std::int64_t{1} << (10 * (power + 1)), kDecimals);
}

// The hundredths of a percent of 25%, 12.5 and 0.25%, as base/percent.hpp reads them. 0.25 may mean
// a quarter.
std::optional<double> read_share(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (!percent && text.starts_with("0.")) return std::nullopt;
  return read_decimal(text.substr(0, text.size() - (percent ? 1 : 0)), 100, 2);
}

// An entry of --gres: its name, perhaps a model, perhaps a count.
std::optional<Amount> read_gres(std::string entry) {
  for (const char* prefix : {"gres/", "gres:"}) {
    if (entry.starts_with(prefix)) entry.erase(0, std::string_view(prefix).size());
  }
  const auto colon = entry.find_first_of(":=");
  std::string name = entry.substr(0, colon);
  std::ranges::transform(name, name.begin(), [](char c) { return static_cast<char>(c | 0x20); });
  if (name != "gpu" && name != "mps" && name != "shard") return std::nullopt;
  const std::string last = entry.substr(entry.find_last_of(":=") + 1);
  const bool counted = colon != std::string::npos && !last.empty() &&
                       last.find_first_not_of("0123456789") == std::string::npos;
  return Amount{name, counted ? std::strtod(last.c_str(), nullptr) : 1, entry};
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<Amount> read_word(const std::string& word) {
  for (const auto& [prefix, kind] :
       {std::pair(kMemory, "gpu-mem"), std::pair(kShare, "gpu-share")}) {
    if (!word.starts_with(prefix)) continue;
    const std::string text = word.substr(prefix.size());
    const auto number = prefix == kMemory ? read_size(text) : read_share(text);
    return number ? std::optional(Amount{kind, *number, word}) : std::nullopt;
  }
  return read_gres(word);
}

std::string more_than(const Amount& asked, const std::string& words) {
  return asked.word + " is more than its job has (" + words +
         "): a step has all of its job's share, or less";
}

}  // namespace

StepPart step_part(const JobShare& job, const StepWords& step) {
  std::vector<std::string> words;
  if (!step.gpu_mem.empty()) words.push_back(std::string(kMemory) + step.gpu_mem);
  if (!step.gpu_share.empty()) words.push_back(std::string(kShare) + step.gpu_share);
  if (job.shards == 0 && job.words.empty() && !words.empty()) {
    return {0, words[0] + ": the job has no part of a GPU: ask for one when it is submitted"};
  }
  if (job.words.empty()) return {};
  // What a step gets of whole GPUs that Slurm has booked itself is Slurm's affair.
  if (job.shards > 0) std::ranges::move(split(step.gres, ','), std::back_inserter(words));
  std::vector<Amount> held;
  for (const std::string& each : split(job.words, ' ')) {
    for (const std::string& word : split(each, ',')) {
      if (const auto amount = read_word(word)) held.push_back(*amount);
    }
  }
  StepPart part;
  bool all = true;
  for (const std::string& word : words) {
    const auto asked = read_word(word);
    if (!asked) {
      if (word.starts_with("--")) {
        return {0, word + " is no amount: write e.g. --gpu-mem=8G or --gpu-share=25%"};
      }
      continue;  // some other GRES
    }
    const auto same = std::ranges::find(held, asked->kind, &Amount::kind);
    if (same == held.end() && asked->kind == "gpu") return {0, more_than(*asked, job.words)};
    if (same == held.end()) {
      return {0, asked->word + ": the job has " + job.words +
                     ", and its steps say how much of that they get in the same words"};
    }
    if (asked->number > same->number) return {0, more_than(*asked, job.words)};
    if (asked->number >= same->number) continue;
    if (asked->number <= 0)
      return {0, asked->word + ": for a step without a GPU write --gres=none"};
    all = false;
    const double shards = static_cast<double>(job.shards) * asked->number / same->number;
    // A hair above a whole number is that number.
    part.shards = std::max(part.shards, static_cast<std::int64_t>(std::ceil(shards - 1e-9)));
  }
  if (all || part.shards >= job.shards) part.shards = 0;
  return part;
}

JobShare read_share(const std::string& admin_comment, const std::string& tres_per_node) {
  JobShare share{.words = std::string(slurm::find_asked_words(admin_comment))};
  for (const std::string& entry : split(tres_per_node, ',')) {
    const auto amount = read_gres(entry);
    if (amount && amount->kind == "shard")
      share.shards += static_cast<std::int64_t>(amount->number);
  }
  return share;
}

}  // namespace aliquot::spank
