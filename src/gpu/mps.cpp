#include "gpu/mps.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/text.hpp"
#include "core/enforcement.hpp"
#include "sys/file.hpp"
#include "sys/folder.hpp"
#include "sys/random_name.hpp"

namespace aliquot::gpu {
namespace {

namespace fs = std::filesystem;

// Jobs often come one after the other: a server is kept for the next one.
constexpr Millis kLinger = seconds(3);
constexpr int kMostFailures = 5;
constexpr const char* kPipes = "p";
constexpr const char* kLog = "l";
constexpr const char* kKeyFile = "key";

// Everybody may walk through root's, but only who knows a name finds what is there.
mode_t folder_mode() { return geteuid() == 0 ? 0711 : 0700; }

// "GPU-… 1000" or "GPU-… all".
Result<void> write_key(const fs::path& folder, const MpsKey& key) {
  const std::string user = key.user ? std::to_string(key.user->value()) : "all";
  return sys::write_whole(folder / kKeyFile, fmt::format("{} {}\n", key.gpu, user), 0600, false);
}

std::optional<MpsKey> read_key(const fs::path& folder) {
  std::ifstream file(folder / kKeyFile);
  std::string gpu;
  std::string user;
  if (!(file >> gpu >> user)) return std::nullopt;
  if (user == "all") return MpsKey{GpuId(gpu), std::nullopt};
  const auto uid = parse_digits(user);
  if (!uid) return std::nullopt;
  return MpsKey{GpuId(gpu), Uid(static_cast<std::uint32_t>(*uid))};
}

}  // namespace

MpsServers::MpsServers(MpsControl& control, fs::path root)
    : control_(control), root_(std::move(root)) {}

std::string MpsServers::describe(const Server& server) {
  return fmt::format(
      "MPS server for {} on {}",
      server.key.user ? fmt::format("user {}", *server.key.user) : std::string("all users"),
      server.key.gpu);
}

Result<void> MpsServers::recover() {
  TRY(sys::make_own_folder(root_, folder_mode()));
  const std::lock_guard lock(mutex_);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root_, error)) {
    const fs::path& folder = entry.path();
    const auto key = read_key(folder);
    if (key && control_.alive(folder)) {
      add(*key, folder)->up = true;
      continue;
    }
    control_.stop(folder);  // servers may have outlived their control daemon
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  return {};
}

MpsServers::Shared MpsServers::find_room(const MpsKey& key, std::int64_t clients) const {
  for (const Shared& server : servers_) {
    if (server->key != key || server->leaving || server->failures >= kMostFailures) continue;
    std::int64_t all = clients;
    for (const auto& [other, client] : server->clients) all += client.count;
    if (all <= core::kMpsClients) return server;
  }
  return nullptr;
}

bool MpsServers::has_room(const MpsKey& key, std::int64_t clients) const {
  const std::lock_guard lock(mutex_);
  return find_room(key, clients) != nullptr;
}

MpsServers::Shared MpsServers::find(const fs::path& folder) const {
  const auto found =
      std::ranges::find_if(servers_, [&](const Shared& one) { return one->folder == folder; });
  return found == servers_.end() ? nullptr : *found;
}

MpsServers::Shared MpsServers::add(const MpsKey& key, fs::path folder) {
  Shared server(new Server{.key = key, .folder = std::move(folder)});
  // What serves everybody may have the GPU to itself (EXCLUSIVE_PROCESS).
  for (const Shared& other : servers_) {
    if (!key.user && other->leaving && other->key == key) server->before.push_back(other);
  }
  servers_.push_back(server);
  return server;
}

void MpsServers::put(Server& server, const Place& place) {
  server.clients[place.job] = {place.clients, place.limit};
  server.empty_since.reset();
  server.early |= place.early;
}

fs::path MpsServers::reserve(const Place& place) {
  const std::lock_guard lock(mutex_);
  Shared server = find_room(place.key, place.clients);
  if (!server) server = add(place.key, root_ / sys::random_name());
  put(*server, place);
  return server->folder / kPipes;
}

Result<void> MpsServers::adopt(const Place& place, const fs::path& pipes) {
  const fs::path folder = pipes.parent_path();
  if (folder.parent_path() != root_) {
    return fail(Error::Code::failed_state, "{} is no place of ours", pipes.string());
  }
  const std::lock_guard lock(mutex_);
  Shared server = find(folder);
  if (!server) server = add(place.key, folder);
  put(*server, place);
  server->clients[place.job].runs = true;
  return {};
}

Result<MpsServers::Up> MpsServers::bring_up(const HolderId& job, const fs::path& pipes) {
  Shared server;
  {
    const std::lock_guard lock(mutex_);
    server = find(pipes.parent_path());
  }
  if (!server) return fail(Error::Code::not_found, "there is no server at {}", pipes.string());
  const std::lock_guard turn(server->turn);
  auto remarks = put_right(*server, Patience::once);
  const std::lock_guard lock(mutex_);
  const Client& client = server->clients[job];
  const bool too_little =
      server->deaf && !client.runs && server->limit > Bytes(0) && client.limit > server->limit;
  if (remarks && !too_little) return Up{std::move(*remarks), server->has_server};
  server->clients.erase(job);
  if (remarks) {
    return fail(Error::Code::unavailable,
                "{} does not take its limit, and has that of a smaller job", describe(*server));
  }
  if (server->clients.empty() && !server->up) std::erase(servers_, server);
  return tl::make_unexpected(remarks.error());
}

Result<void> MpsServers::start(Server& server) {
  for (const Shared& before : std::exchange(server.before, {})) end(*before);
  const fs::path& folder = server.folder;
  TRY(sys::make_own_folder(root_, folder_mode()));
  TRY(sys::make_own_folder(folder, folder_mode()));
  TRY(sys::make_own_folder(folder / kPipes, folder_mode()));
  TRY(sys::make_own_folder(folder / kLog, 0700));
  TRY(write_key(folder, server.key));
  return control_.start(folder, server.key.gpu, !server.key.user);
}

Result<std::vector<std::string>> MpsServers::put_right(Server& server, Patience patience) {
  std::vector<std::string> remarks;
  bool early = false;
  bool deaf = false;
  {
    const std::lock_guard lock(mutex_);
    early = server.early && !server.has_server;
    deaf = server.deaf;
  }
  if (!server.up || !control_.alive(server.folder)) {
    if (server.up) {
      control_.stop(server.folder);  // what the dead one left: servers nobody controls
      const std::lock_guard lock(mutex_);
      ++server.failures;
      early = server.early;
    }
    server.limit = Bytes(0);
    server.has_server = false;
    deaf = false;
    if (const auto started = start(server); !started) {
      std::error_code ignored;
      if (!server.up) fs::remove_all(server.folder, ignored);
      return tl::make_unexpected(started.error());
    }
    if (server.up) {
      ++restarts_;
      remarks.push_back(describe(server) + ": its control daemon died; started again");
    }
    server.up = true;
  }
  if (early) {
    const auto started = control_.start_server(server.folder);
    server.has_server = started.has_value();
    if (!started) remarks.push_back(describe(server) + ": " + started.error().message);
  }
  if (deaf && patience == Patience::once) {
    const std::lock_guard lock(mutex_);
    server.due = true;
  } else if (auto complaint = set_limit(server)) {
    remarks.push_back(std::move(*complaint));
  }
  return remarks;
}

// Where it cannot be set, the jobs' environment and the library still hold them, until it can be
// when the next job comes or goes.
std::optional<std::string> MpsServers::set_limit(Server& server) {
  Bytes most(0);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [job, client] : server.clients) most = std::max(most, client.limit);
    server.due = false;
  }
  if (most == server.limit || most == Bytes(0)) return std::nullopt;
  const auto set = control_.limit(server.folder, most);
  if (set) server.limit = most;
  const std::lock_guard lock(mutex_);
  server.deaf = !set;
  return set ? std::nullopt : std::optional(describe(server) + ": " + set.error().message);
}

void MpsServers::release(const HolderId& job, MonoTime now) {
  const std::lock_guard lock(mutex_);
  for (const Shared& server : servers_) {
    if (server->clients.erase(job) == 0) continue;
    if (server->clients.empty()) {
      server->empty_since = now;
    } else {
      server->due = true;
    }
  }
}

void MpsServers::end(Server& server) {
  const std::lock_guard turn(server.turn);
  if (!std::exchange(server.gone, true)) {
    control_.stop(server.folder);
    std::error_code ignored;
    fs::remove_all(server.folder, ignored);
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(servers_, [&](const Shared& one) { return one.get() == &server; });
}

MpsServers::Chore MpsServers::stopping(const Shared& server) {
  server->leaving = true;
  return {server->key, server->folder, [this, server]() -> std::vector<std::string> {
            end(*server);
            return {describe(*server) + ": stopped, it was empty"};
          }};
}

std::vector<std::string> MpsServers::mend(Server& server) {
  const std::lock_guard turn(server.turn);
  {
    const std::lock_guard lock(mutex_);
    server.given_out = false;
    if (server.clients.empty()) return {};
  }
  auto remarks = put_right(server, Patience::again);
  if (remarks) return *remarks;
  return {describe(server) + ": its control daemon died; " + remarks.error().message};
}

std::vector<MpsServers::Chore> MpsServers::tick(MonoTime now) {
  std::vector<Chore> chores;
  std::vector<Shared> serving;
  {
    const std::lock_guard lock(mutex_);
    for (const Shared& server : servers_) {
      if (server->leaving || server->given_out) continue;
      if (!server->clients.empty()) {
        serving.push_back(server);
        continue;
      }
      if (!server->empty_since) server->empty_since = now;
      if (now - *server->empty_since >= kLinger) chores.push_back(stopping(server));
    }
  }
  for (const Shared& server : serving) {
    const std::unique_lock turn(server->turn, std::try_to_lock);
    if (!turn || !server->up) continue;  // somebody is at it
    const bool alive = control_.alive(server->folder);
    const std::lock_guard lock(mutex_);
    if (alive) server->failures = 0;
    if (alive ? !server->due : server->failures >= kMostFailures) continue;
    server->given_out = true;
    chores.push_back({server->key, server->folder, [this, server] { return mend(*server); }});
  }
  return chores;
}

std::vector<MpsServers::View> MpsServers::view() const {
  const std::lock_guard lock(mutex_);
  std::vector<View> views;
  for (const Shared& server : servers_) {
    View view{server->key, server->folder / kPipes, {}, server->leaving};
    for (const auto& [job, client] : server->clients) view.jobs.push_back(job);
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<MpsServers::Chore> MpsServers::take_empty() {
  const std::lock_guard lock(mutex_);
  std::vector<Chore> chores;
  for (const Shared& server : servers_) {
    if (server->clients.empty()) chores.push_back(stopping(server));
  }
  return chores;
}

}  // namespace aliquot::gpu
