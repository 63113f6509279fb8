#include "cli/common.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <unordered_set>

#include "base/text.hpp"

namespace aliquot::cli {
namespace {

struct KnownError {
  std::string_view code;
  int number;
  std::string_view text;
};

constexpr auto kErrors = std::to_array<KnownError>({
    {kUnreachable, 1800, "Unable to contact slurm controller (connect failure)"},
    {"ESLURM_INVALID_PARTITION_NAME", 2000, "Invalid partition name specified"},
    {"ESLURM_DEFAULT_PARTITION_NOT_SET", 2001,
     "No partition specified or system default partition"},
    {"ESLURM_ACCESS_DENIED", 2002, "Access/permission denied"},
    {"ESLURM_TOO_MANY_REQUESTED_CPUS", 2005, "More processors requested than permitted"},
    {"ESLURM_INVALID_NODE_COUNT", 2006, "Node count specification invalid"},
    {"ESLURM_JOB_SCRIPT_MISSING", 2009, "Job script not specified"},
    {"ESLURM_USER_ID_MISSING", 2010, "Invalid user id"},
    {"ESLURM_NOT_TOP_PRIORITY", 2013, "Immediate execution impossible, insufficient priority"},
    {"ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", 2014,
     "Requested node configuration is not available"},
    {"ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE", 2015,
     "Requested partition configuration not available now"},
    {"ESLURM_NODES_BUSY", 2016, "Requested nodes are busy"},
    {"ESLURM_INVALID_JOB_ID", 2017, "Invalid job id specified"},
    {"ESLURM_INVALID_NODE_NAME", 2018, "Invalid node name specified"},
    {"ESLURM_TRANSITION_STATE_NO_UPDATE", 2020, "Job can not be altered now, try again later"},
    {"ESLURM_ALREADY_DONE", 2021, "Job/step already completing or completed"},
    {"ESLURM_BAD_TASK_COUNT", 2025, "Task count specification invalid"},
    {"ESLURM_JOB_PENDING", 2024, "Job is pending execution"},
    {"ESLURM_INVALID_FEATURE", 2029, "Invalid feature specification"},
    {"ESLURM_INVALID_NODE_STATE", 2028, "Invalid node state specified"},
    {"ESLURM_DEPENDENCY", 2038, "Job dependency problem"},
    {"ESLURM_CIRCULAR_DEPENDENCY", 2071, "Circular job dependency"},
    {"ESLURM_BATCH_ONLY", 2039, "Only batch jobs are accepted or processed"},
    {"ESLURM_INVALID_ACCOUNT", 2045, "Invalid account or account/partition combination specified"},
    {"ESLURM_INVALID_LICENSES", 2048, "Invalid license specification"},
    {"ESLURM_ACCOUNTING_POLICY", 2050,
     "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"},
    {"ESLURM_INVALID_TIME_LIMIT", 2051,
     "Requested time limit is invalid (missing or exceeds some limit)"},
    {"ESLURM_INVALID_QOS", 2066, "Invalid qos specification"},
    // Those whose number never becomes an exit status have 1.
    {"ESLURM_DISABLED", 1, "Requested operation is presently disabled"},
    {"ESLURM_INVALID_TASK_MEMORY", 1, "Memory required by task is not available"},
    {"ESLURM_JOB_NOT_PENDING", 1, "Job is no longer pending execution"},
    {"ESLURM_PATHNAME_TOO_LONG", 2012, "Pathname of a file, directory or other parameter too long"},
    {"ESLURM_STEP_LIMIT", 1, "Step limit reached for this job"},
    {"ESLURM_INVALID_GRES", 2072, "Invalid generic resource (gres) specification"},
    {"ESLURM_INVALID_ARRAY", 2094, "Invalid job array specification"},
});

const KnownError* find_error(std::string_view code) {
  for (const auto& error : kErrors) {
    if (error.code == code) return &error;
  }
  return nullptr;
}

bool is_folder_of(const std::string& path, uid_t uid) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == uid &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

bool is_passing(const api::ErrorInfo& error) {
  return error.code == kUnreachable || error.code == "EAGAIN";
}

std::string error_text(const api::ErrorInfo& error) {
  if (const auto* known = find_error(error.code)) return std::string(known->text);
  if (!error.message.empty()) return error.message;
  return error.code.empty() ? "Unspecified error" : error.code;
}

int error_number(std::string_view code) {
  const auto* known = find_error(code);
  return known == nullptr ? 1 : known->number;
}

std::vector<std::string> socket_candidates() {
  if (const char* named = std::getenv("ALIQUOT_SOCKET"); named != nullptr && *named != '\0') {
    return {named};
  }
  std::vector<std::string> candidates;
  const auto uid = ::geteuid();
  if (uid != 0) {
    // A job's environment may lack XDG_RUNTIME_DIR, so its usual value is tried as well.
    std::vector<std::string> folders;
    if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr) {
      folders.push_back(std::string(runtime) + "/aliquot");
    }
    folders.push_back(fmt::format("/run/user/{}/aliquot", uid));
    folders.push_back(fmt::format("/tmp/aliquot-{}", uid));
    for (const auto& folder : folders) {
      if (is_folder_of(folder, uid)) candidates.push_back(folder + "/aliquotd.sock");
    }
  }
  candidates.emplace_back("/run/aliquot/aliquotd.sock");
  return candidates;
}

Answer<Daemon> Daemon::connect() {
  std::string why;
  for (const auto& path : socket_candidates()) {
    auto client = net::Client::connect(path);
    if (client) return Daemon(std::move(*client));
    why = client.error().message;
  }
  return tl::make_unexpected(api::ErrorInfo{std::string(kUnreachable), why});
}

Answer<std::string> Daemon::send(std::string_view method, std::string_view target,
                                 std::string_view body) {
  auto response = client_.send(method, target, body);
  if (!response) {
    return tl::make_unexpected(api::ErrorInfo{std::string(kUnreachable), response.error().message});
  }
  if (response->status >= 200 && response->status < 300) return std::move(response->body);
  auto error = api::from_json<api::ErrorInfo>(response->body);
  if (error) {
    api::make_plain(*error);
    return tl::make_unexpected(std::move(*error));
  }
  return tl::make_unexpected(
      api::ErrorInfo{"", fmt::format("the daemon answered with status {}", response->status)});
}

Answer<api::JobList> Daemon::list(std::string_view target, bool as_is) {
  api::JobList all;
  for (std::string page(target);;) {
    auto more = as_is ? get_as_is<api::JobList>(page) : get<api::JobList>(page);
    if (!more) return more;
    std::ranges::move(more->jobs, std::back_inserter(all.jobs));
    if (!more->next) break;
    page = fmt::format("{}{}after={}", target, target.find('?') == target.npos ? '?' : '&',
                       *more->next);
  }
  // What ended between two pages came twice: how it ended counts.
  std::unordered_set<std::int64_t> seen;
  const auto kept = std::remove_if(all.jobs.rbegin(), all.jobs.rend(),
                                   [&](const auto& job) { return !seen.insert(job.id).second; });
  all.jobs.erase(all.jobs.begin(), kept.base());
  return all;
}

std::optional<Uid> find_user(std::string_view name_or_number) {
  const std::string name(name_or_number);
  if (const auto* entry = ::getpwnam(name.c_str())) return Uid(entry->pw_uid);
  const auto number = parse_digits(name);
  if (number && *number < UINT32_MAX) return Uid(static_cast<std::uint32_t>(*number));
  return std::nullopt;
}

std::string user_name(Uid uid) {
  const auto* entry = ::getpwuid(uid.value());
  return entry == nullptr ? fmt::format("{}", uid.value()) : entry->pw_name;
}

void Voice::say(std::string_view kind, std::string_view text) const {
  std::string lines;
  for (const auto line : split(text, '\n')) {
    // What it says may be what somebody typed, or a file's name.
    lines += fmt::format("{}: {}{}\n", name_, kind, make_plain(line));
  }
  // One write: lines of several processes do not mix.
  if (std::fwrite(lines.data(), 1, lines.size(), stderr) != lines.size()) return;
  std::fflush(stderr);
}

void Voice::error(std::string_view text) const { say("error: ", text); }
void Voice::fatal(std::string_view text) const { say("fatal: ", text); }
void Voice::info(std::string_view text) const {
  if (level_ >= 0) say("", text);
}
void Voice::verbose(std::string_view text) const {
  if (level_ >= 1) say("", text);
}

}  // namespace aliquot::cli
