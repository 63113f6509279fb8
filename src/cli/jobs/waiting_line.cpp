#include "cli/jobs/waiting_line.hpp"

#include <fmt/format.h>

#include "base/slurm_time.hpp"
#include "base/timestamp.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kPlace = "before it in the queue";  // in the sentences of `why`

// The sentence that says who is before it, without whom; else the first one there is.
std::string place_of(const api::WhyInfo& why) {
  for (const std::string& sentence : why.sentences) {
    const auto at = sentence.find(kPlace);
    if (at == sentence.npos) continue;
    // Short, for 80 columns; nobody would take it for another queue.
    return sentence.substr(0, at + std::string_view("before it").size());
  }
  if (why.sentences.empty()) return "next in the queue";
  std::string first = why.sentences.front();
  if (first.ends_with('.')) first.pop_back();
  return first;
}

}  // namespace

std::string waiting_line(std::string_view command, const api::WhyInfo& why, WallTime now) {
  auto line = fmt::format("{}: job {}: {}", command, why.job_id, place_of(why));
  if (!why.earliest_start_ms) return line;
  const WallTime start(*why.earliest_start_ms);
  if (start <= now) return line + "; expected to start at any moment";
  auto moment = format_timestamp(start);
  // The time of day will do, today.
  const auto today = format_timestamp(now);
  const auto day_end = moment.find('T');
  if (day_end != moment.npos && moment.substr(0, day_end) == today.substr(0, day_end)) {
    moment.erase(0, day_end + 1);
  }
  return line + fmt::format("; expected to start at {}, in {}", moment,
                            format_duration(start - now, TimeStyle::squeue));
}

std::string cut_to_columns(std::string_view text, std::size_t columns) {
  std::size_t characters = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U) continue;
    if (characters++ == columns) return std::string(text.substr(0, at));
  }
  return std::string(text);
}

}  // namespace aliquot::cli
