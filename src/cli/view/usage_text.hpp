// GPU hours that users or accounts were granted, and what they made of them: counted from what is
// on record, and printed for people, as CSV or as JSON. Pure; report.cpp asks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

enum class UsageBy : std::uint8_t { user, account };

struct UsageWanted {
  UsageBy by = UsageBy::user;
  std::string name = {};  // this one alone; empty: all
  WallTime since;
  WallTime until;
};

struct UsageRow {
  std::string name;
  std::int64_t jobs = 0;  // that held GPUs
  double granted_ms = 0;  // a whole GPU as one, a share as the larger of its parts
  double used_ms = 0;     // GPU time
  [[nodiscard]] double wasted_ms() const { return granted_ms > used_ms ? granted_ms - used_ms : 0; }
};

// Of jobs that were there only in part of the time, that part. What runs has used what its GPUs
// say. The most granted first.
std::vector<UsageRow> count_usage(const std::vector<api::JobInfo>& jobs, const api::NodeInfo& node,
                                  const UsageWanted& wanted);

std::string usage_table(const std::vector<UsageRow>& rows, const UsageWanted& wanted);
std::string usage_csv(const std::vector<UsageRow>& rows, const UsageWanted& wanted);
std::string usage_json(const std::vector<UsageRow>& rows, const UsageWanted& wanted);

}  // namespace aliquot::cli
