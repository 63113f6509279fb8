// sreport: what was held of the machine in a period, by account and user, in Slurm's columns. It is
// counted from the jobs on record at the moment it is asked for. Text only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/accounts.hpp"
#include "api/types.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

enum class ReportKind : std::uint8_t {
  utilization,       // cluster Utilization
  accounts_by_user,  // cluster AccountUtilizationByUser
  users_by_account,  // cluster UserUtilizationByAccount
  top                // user TopUsage
};
enum class ReportTres : std::uint8_t { cpu, mem, energy, node, billing, gpu };
enum class ReportUnit : std::uint8_t { seconds, minutes, hours };

struct ReportQuery {
  ReportKind kind = ReportKind::utilization;
  WallTime start;
  WallTime end;  // the first moment after it
  std::vector<ReportTres> tres = {ReportTres::cpu};
  bool tres_given = false;  // -T: rows are named
  ReportUnit unit = ReportUnit::minutes;
  bool amount = true;  // in that unit
  bool percent = false;
  std::vector<std::string> accounts = {};
  std::vector<std::string> users = {};
  std::string format = {};  // empty: the usual columns
  bool tree = false;
  bool group = false;  // a user's accounts in one row
  std::size_t top = 10;
  bool here = true;  // Clusters= names this one, or nothing
  bool header = true;
  std::string delimiter = {};  // empty: columns
  bool trailing = false;
};

struct ReportFacts {
  std::vector<api::JobInfo> jobs;  // that waited or ran in the period
  api::ClusterInfo cluster;
  api::AccountBook book;
  WallTime now;
  std::function<std::string(const std::string&)> proper_name;  // of a user
};

struct ReportText {
  std::string out;
  std::vector<std::string> complaints = {};  // `Unknown field 'foo'`
};
ReportText format_report(const ReportQuery& query, const ReportFacts& facts);

// `cpu,gres/gpu`, `ALL`. What is no TRES of ours is left out, as in Slurm.
std::vector<ReportTres> parse_report_tres(std::string_view text);
// `Hours`, `MinPer`, `percent`, also cut short; false: none of them.
bool parse_report_time(std::string_view text, ReportQuery& query);

// Whole hours in the local time zone, as Slurm counts: at least one; nothing said: yesterday.
struct ReportPeriod {
  WallTime start;
  WallTime end;
};
ReportPeriod report_period(std::optional<WallTime> start, std::optional<WallTime> end,
                           WallTime now);

}  // namespace aliquot::cli
