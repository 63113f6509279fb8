#include "cli/view/sprio_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <compare>
#include <limits>
#include <vector>

#include "base/text.hpp"
#include "cli/view/listing.hpp"

namespace aliquot::cli {
namespace {

using Info = api::PriorityInfo;
// The row of -w is told by its number.
constexpr std::int64_t kWeightsRow = -1;

bool is_weights(const Info& job) { return job.job_id == kWeightsRow; }

void put(std::string& out, std::int64_t number) { out += std::to_string(number); }

// Seven digits behind the point, as Slurm prints them.
void put_factor(std::string& out, const Info& job, const api::FactorInfo& factor) {
  if (is_weights(job)) return put(out, factor.weighted);
  out += fmt::format("{}.{:07}", factor.factor / 10'000'000, factor.factor % 10'000'000);
}

// clang-format off
#define ROW(...) [](std::string& out, const Info& job, const ViewContext&) { __VA_ARGS__; }
#define JOB_ROW(...) [](std::string& out, const Info& job, const ViewContext&) { if (!is_weights(job)) { __VA_ARGS__; } }
constexpr auto kSprioFields = std::to_array<ViewField<Info>>({
    {'a', "", "AGE", ROW(put_factor(out, job, job.age))},
    {'A', "", "AGE", ROW(put(out, job.age.weighted))},
    {'b', "", "ASSOC", ROW(put_factor(out, job, {}))},
    {'B', "", "ASSOC", ROW((void)job; put(out, 0))},
    {'c', "", "CLUSTER", ROW((void)job; out += "N/A")},
    {'f', "", "FAIRSHARE", ROW(put_factor(out, job, job.fair_share))},
    {'F', "", "FAIRSHARE", ROW(put(out, job.fair_share.weighted))},
    {'i', "", "JOBID", ROW(if (is_weights(job)) out += "Weights"; else put(out, job.job_id))},
    {'j', "", "JOBSIZE", ROW(put_factor(out, job, job.job_size))},
    {'J', "", "JOBSIZE", ROW(put(out, job.job_size.weighted))},
    {'N', "", "NICE", JOB_ROW(put(out, job.nice))},
    {'p', "", "PARTITION", ROW(put_factor(out, job, job.partition_factor))},
    {'P', "", "PARTITION", ROW(put(out, job.partition_factor.weighted))},
    {'q', "", "QOS", ROW(put_factor(out, job, job.qos_factor))},
    {'Q', "", "QOS", ROW(put(out, job.qos_factor.weighted))},
    {'r', "", "PARTITION", JOB_ROW(out += job.partition)},
    {'S', "", "SITE", ROW(put(out, is_weights(job) ? 1 : job.site))},
    {'t', "", "TRES", ROW((void)out; (void)job)},
    {'T', "", "TRES", ROW(if (is_weights(job)) out += "(null)")},
    {'u', "", "USER", JOB_ROW(out += job.user)},
    {'y', "", "PRIORITY", JOB_ROW(out += fmt::format("{:.14f}", static_cast<double>(job.priority) / std::numeric_limits<std::uint32_t>::max()))},
    {'Y', "", "PRIORITY", JOB_ROW(put(out, job.priority))},
});
#undef ROW
#undef JOB_ROW
// clang-format on

std::strong_ordering compare(char letter, const Info& a, const Info& b) {
  switch (letter) {
    case 'a':
    case 'A':
      return a.age.weighted <=> b.age.weighted;
    case 'f':
    case 'F':
      return a.fair_share.factor <=> b.fair_share.factor;
    case 'j':
    case 'J':
      return a.job_size.factor <=> b.job_size.factor;
    case 'N':
      return a.nice <=> b.nice;
    case 'p':
    case 'P':
      return a.partition_factor.factor <=> b.partition_factor.factor;
    case 'q':
    case 'Q':
      return a.qos_factor.factor <=> b.qos_factor.factor;
    case 'r':
      return a.partition <=> b.partition;
    case 'S':
      return a.site <=> b.site;
    case 'u':
      return a.user <=> b.user;
    case 'y':
    case 'Y':
      return a.priority <=> b.priority;
    default:
      return a.job_id <=> b.job_id;
  }
}

struct SprioKey {
  char letter = 'i';
  bool descending = false;
};

Result<std::vector<SprioKey>> parse_keys(std::string_view text) {
  std::vector<SprioKey> keys;
  for (std::string_view word : split(text, ',')) {
    if (word.empty()) continue;
    SprioKey key;
    if (word[0] == '+' || word[0] == '-') {
      key.descending = word[0] == '-';
      word.remove_prefix(1);
    }
    const auto known = [&](const auto& field) {
      return word.size() == 1 && field.letter == word[0];
    };
    if (std::ranges::none_of(kSprioFields, known)) {
      return fail(Error::Code::invalid_argument, "Invalid sort specification: {}",
                  word.substr(0, 1));
    }
    key.letter = word[0];
    keys.push_back(key);
  }
  return keys;
}

}  // namespace

std::string sprio_format(const api::PriorityInfo& weights, const SprioColumns& columns) {
  if (columns.longer) {
    return columns.normal ? "%.15i %9r %.8u %10y %10a %10b %10f %10j %10p %10q %20t"
                          : "%.15i %9r %.8u %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10Q %.11N "
                            "%.20T";
  }
  std::string format = "%.15i %9r";
  if (columns.users) format += " %.8u";
  format += columns.normal ? " %10y" : " %.10Y %.10S";
  const auto add = [&](const api::FactorInfo& factor, std::string_view weighted,
                       std::string_view normal) {
    if (factor.weighted != 0) format += columns.normal ? normal : weighted;
  };
  add(weights.age, " %.10A", " %10a");
  add(weights.fair_share, " %.10F", " %10f");
  add(weights.job_size, " %.10J", " %10j");
  add(weights.partition_factor, " %.10P", " %10p");
  add(weights.qos_factor, " %.10Q", " %10q");
  return format;
}

SprioText format_sprio(const api::PriorityList& list, const SprioView& view) {
  SprioText text;
  const auto listing = Listing<Info>::of(kSprioFields, view.format, false, false);
  if (!listing) {
    text.error = listing.error().message;
    return text;
  }
  for (const auto& field : listing->unknown()) {
    text.complaints.push_back(fmt::format("Invalid job format specification: {}", field));
  }
  if (view.header) listing->append_header(text.out);
  const ViewContext context{WallTime()};
  if (view.weights) {
    Info weights = list.weights;
    weights.job_id = kWeightsRow;
    listing->append_row(text.out, weights, context);
    return text;
  }
  const auto keys = parse_keys(view.sort);
  if (!keys) {
    text.error = keys.error().message;
    return text;
  }
  std::vector<const Info*> jobs;
  for (const Info& job : list.jobs) jobs.push_back(&job);
  std::ranges::stable_sort(jobs, [&](const Info* a, const Info* b) {
    for (const SprioKey& key : *keys) {
      const auto way = compare(key.letter, *a, *b);
      if (way != 0) return key.descending ? way > 0 : way < 0;
    }
    return a->job_id < b->job_id;
  });
  for (const Info* job : jobs) listing->append_row(text.out, *job, context);
  return text;
}

}  // namespace aliquot::cli
