#include "gpu/mps.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/text.hpp"
#include "core/enforcement.hpp"

namespace aliquot::gpu {
namespace {

namespace fs = std::filesystem;

// Jobs often come one after the other: a server is kept for the next one.
constexpr Millis kLinger = seconds(3);
constexpr int kMostFailures = 5;
constexpr const char* kPipes = "p";
constexpr const char* kLog = "l";
constexpr const char* kKeyFile = "key";

Result<std::string> random_name() {
  std::array<unsigned char, 8> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return fail(Error::Code::internal, "the kernel gives no random numbers");
  }
  std::string name;
  for (const auto byte : bytes) name += fmt::format("{:02x}", byte);
  return name;
}

// Made, or ours already and not a link to somewhere else.
Result<void> make_folder(const fs::path& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST) {
    return fail(Error::Code::unavailable, "cannot make {}: {}", path.string(),
                std::strerror(errno));
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) {
    return fail(Error::Code::permission_denied, "{} is not a folder of ours", path.string());
  }
  if (chmod(path.c_str(), mode) != 0) {
    return fail(Error::Code::permission_denied, "cannot set the mode of {}: {}", path.string(),
                std::strerror(errno));
  }
  return {};
}

// "GPU-… 1000" or "GPU-… all".
Result<void> write_key(const fs::path& folder, const MpsKey& key) {
  const fs::path path = folder / kKeyFile;
  unlink(path.c_str());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) {
    return fail(Error::Code::unavailable, "cannot write {}: {}", path.string(),
                std::strerror(errno));
  }
  const std::string text = fmt::format(
      "{} {}\n", key.gpu, key.user ? std::to_string(key.user->value()) : std::string("all"));
  const bool written = write(fd, text.data(), text.size()) == std::ssize(text);
  close(fd);
  if (!written) return fail(Error::Code::unavailable, "cannot write {}", path.string());
  return {};
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

std::string MpsServers::describe(const Server& server) const {
  return fmt::format(
      "MPS server for {} on {}",
      server.key.user ? fmt::format("user {}", *server.key.user) : std::string("all users"),
      server.key.gpu);
}

Result<void> MpsServers::recover() {
  TRY(make_folder(root_, geteuid() == 0 ? 0711 : 0700));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root_, error)) {
    const fs::path& folder = entry.path();
    const auto key = read_key(folder);
    if (key && control_.alive(folder)) {
      servers_.push_back(std::make_unique<Server>(Server{.key = *key, .folder = folder}));
      continue;
    }
    control_.stop(folder);  // servers may have outlived their control daemon
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  return {};
}

Result<MpsServers::Server*> MpsServers::start(const MpsKey& key, const fs::path& folder) {
  TRY(make_folder(root_, geteuid() == 0 ? 0711 : 0700));
  TRY(make_folder(folder, geteuid() == 0 ? 0711 : 0700));
  TRY(make_folder(folder / kPipes, geteuid() == 0 ? 0711 : 0700));
  TRY(make_folder(folder / kLog, 0700));
  TRY(write_key(folder, key));
  if (const auto started = control_.start(folder, key.gpu, !key.user); !started) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    return tl::make_unexpected(started.error());
  }
  servers_.push_back(std::make_unique<Server>(Server{.key = key, .folder = folder}));
  return servers_.back().get();
}

Result<void> MpsServers::adopt(const HolderId& job, const MpsKey& key, const fs::path& pipes,
                               std::int64_t clients, Bytes limit) {
  const fs::path folder = pipes.parent_path();
  if (folder.parent_path() != root_) {
    return fail(Error::Code::failed_state, "{} is no place of ours", pipes.string());
  }
  const auto found =
      std::ranges::find_if(servers_, [&](const auto& one) { return one->folder == folder; });
  Server* server = found == servers_.end() ? TRY(start(key, folder)) : found->get();
  server->clients[job] = {clients, limit};
  server->empty_since.reset();
  set_limit(*server);
  return {};
}

MpsServers::Server* MpsServers::find_room(const MpsKey& key, std::int64_t clients) {
  for (const auto& server : servers_) {
    std::int64_t all = clients;
    for (const auto& [other, client] : server->clients) all += client.count;
    if (server->key == key && all <= core::kMpsClients && control_.alive(server->folder)) {
      return server.get();
    }
  }
  return nullptr;
}

bool MpsServers::has_room(const MpsKey& key, std::int64_t clients) {
  return find_room(key, clients) != nullptr;
}

Result<fs::path> MpsServers::acquire(const HolderId& job, const MpsKey& key, std::int64_t clients,
                                     Bytes limit) {
  Server* chosen = find_room(key, clients);
  if (chosen == nullptr) chosen = TRY(start(key, root_ / TRY(random_name())));
  chosen->clients[job] = {clients, limit};
  chosen->empty_since.reset();
  set_limit(*chosen);
  return chosen->folder / kPipes;
}

Result<void> MpsServers::start_early(const fs::path& pipes) {
  for (const auto& server : servers_) {
    if (server->folder != pipes.parent_path()) continue;
    TRY(control_.start_server(server->folder));
    server->early = true;
    return {};
  }
  return fail(Error::Code::not_found, "there is no server at {}", pipes.string());
}

void MpsServers::release(const HolderId& job, MonoTime now) {
  for (const auto& server : servers_) {
    if (server->clients.erase(job) == 0) continue;
    if (server->clients.empty()) {
      server->empty_since = now;
    } else {
      set_limit(*server);
    }
  }
}

// Where it cannot be set, the jobs' environment and the library still hold them, until it can be
// when the next job comes or goes.
void MpsServers::set_limit(Server& server) {
  Bytes most(0);
  for (const auto& [job, client] : server.clients) most = std::max(most, client.limit);
  if (most == server.limit || most == Bytes(0)) return;
  if (const auto set = control_.limit(server.folder, most)) {
    server.limit = most;
  } else {
    complaints_.push_back(describe(server) + ": " + set.error().message);
  }
}

void MpsServers::remove(Server& server) {
  control_.stop(server.folder);
  std::error_code ignored;
  fs::remove_all(server.folder, ignored);
  server.removed = true;
}

void MpsServers::drop_removed() {
  std::erase_if(servers_, [](const auto& one) { return one->removed; });
}

std::vector<std::string> MpsServers::tick(MonoTime now) {
  auto events = std::exchange(complaints_, {});
  for (const auto& server : servers_) {
    if (server->clients.empty()) {
      if (!server->empty_since) server->empty_since = now;
      if (now - *server->empty_since < kLinger) continue;
      remove(*server);
      events.push_back(describe(*server) + ": stopped, it was empty");
      continue;
    }
    if (control_.alive(server->folder)) {
      server->failures = 0;
      continue;
    }
    if (server->failures >= kMostFailures) continue;
    // What the dead one left: servers nobody controls.
    control_.stop(server->folder);
    const auto again = control_.start(server->folder, server->key.gpu, !server->key.user);
    ++server->failures;
    server->limit = Bytes(0);
    if (again) set_limit(*server);
    if (again && server->early) (void)control_.start_server(server->folder);
    events.push_back(fmt::format("{}: its control daemon died; {}", describe(*server),
                                 again ? "started again" : again.error().message));
  }
  drop_removed();
  return events;
}

std::vector<MpsServers::View> MpsServers::view() const {
  std::vector<View> views;
  for (const auto& server : servers_) {
    View view{server->key, server->folder / kPipes, {}};
    for (const auto& [job, client] : server->clients) view.jobs.push_back(job);
    views.push_back(std::move(view));
  }
  return views;
}

void MpsServers::stop_empty() {
  for (const auto& server : servers_) {
    if (server->clients.empty()) remove(*server);
  }
  drop_removed();
}

}  // namespace aliquot::gpu
