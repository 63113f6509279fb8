#include "cli/daemon_client.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>

namespace aliquot::cli {
namespace {

bool is_folder_of(const std::string& path, uid_t uid) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == uid &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

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

Reply<DaemonClient> DaemonClient::connect() {
  std::string why;
  for (const auto& path : socket_candidates()) {
    auto client = net::Client::connect(path);
    if (client) return DaemonClient(std::move(*client));
    why = client.error().message;
  }
  return tl::make_unexpected(api::ErrorInfo{std::string(kUnreachable), why});
}

Reply<std::string> DaemonClient::send(std::string_view method, std::string_view target,
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

Reply<api::JobList> DaemonClient::list(std::string_view target, bool as_is) {
  api::JobList all;
  for (std::string page(target);;) {
    auto more = as_is ? get_as_is<api::JobList>(page) : get<api::JobList>(page);
    if (!more) return more;
    std::ranges::move(more->jobs, std::back_inserter(all.jobs));
    if (!more->next) break;
    page = fmt::format("{}{}after={}", target, target.find('?') == target.npos ? '?' : '&',
                       *more->next);
  }
  // A job that ended between two pages is in both: the later record counts.
  const bool runs = target.find("duplicates=") != target.npos;  // each run of a job by itself
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  const auto kept =
      std::remove_if(all.jobs.rbegin(), all.jobs.rend(), [&](const api::JobInfo& job) {
        return !seen.insert({job.id, runs ? job.restarts : 0}).second;
      });
  all.jobs.erase(all.jobs.begin(), kept.base());
  return all;
}

}  // namespace aliquot::cli
