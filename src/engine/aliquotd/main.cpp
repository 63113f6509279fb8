// aliquotd: reads its options and settings, says what is wrong with them, and runs the daemon.
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/text.hpp"
#include "engine/daemon.hpp"
#include "node/service.hpp"
#include "sys/folder.hpp"

namespace aliquot::engine {
namespace {

namespace fs = std::filesystem;

int say(std::string_view text) { return node::complain("aliquotd", text); }

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string home() {
  const passwd* entry = ::getpwuid(::getuid());
  return entry == nullptr ? variable("HOME") : entry->pw_dir;
}

std::string default_socket() {
  if (::getuid() == 0) return "/run/aliquot/aliquotd.sock";
  const std::string run = variable("XDG_RUNTIME_DIR");
  return (run.empty() ? fmt::format("/tmp/aliquot-{}", ::getuid()) : run + "/aliquot") +
         "/aliquotd.sock";
}

std::string default_state() {
  if (::getuid() == 0) return "/var/lib/aliquot";
  const std::string state = variable("XDG_STATE_HOME");
  return (state.empty() ? home() + "/.local/state" : state) + "/aliquot";
}

std::string default_config() {
  return ::getuid() == 0 ? "/etc/aliquot/aliquot.toml" : home() + "/.config/aliquot/aliquot.toml";
}

// The default folder of the socket is ours to make, and must be ours: in /tmp anyone could have.
Result<void> make_socket_folder(const fs::path& folder) {
  return sys::make_safe_folder(folder, ::getuid() == 0 ? 0755 : 0700);
}

int serve(int argc, char** argv) {
  DaemonOptions options;
  std::string state;
  std::string run;
  std::string config;
  std::string simulate;
  bool foreground = false;
  bool check = false;
  const auto status = node::read_options(
      argc, argv,
      {.name = "aliquotd",
       .version = ALIQUOT_VERSION,
       .purpose = "queues and runs the jobs of this machine, sharing its GPUs",
       .config = {},
       .remarks = "Run by root it serves every user of the machine, run by anyone else that user "
                  "alone."},
      {{"check", "", "check the settings, say what they are, and end", &check},
       {"foreground", "", "stay in the foreground, log to stderr", &foreground},
       {"socket", "PATH", "listen here", &options.socket},
       {"state-dir", "DIR", "keep the queue and the jobs' files here", &state},
       {"run-dir", "DIR",
        "keep what a reboot may forget here: limits of running jobs, pipes of MPS", &run},
       {"config", "FILE", "read the settings from here", &config},
       {"simulate", "MODEL:N", "pretend to have N GPUs of that model, for trying things out",
        &simulate}});
  if (status) return *status;
  options.state = state;
  options.run = run;

  // The place, also when something else has become the working directory.
  if (!config.empty()) config = fs::absolute(config);
  options.reload = [config, simulate]() -> Result<Settings> {
    Settings settings;
    if (!config.empty() || fs::exists(default_config())) {
      settings = TRY(load_settings(config.empty() ? default_config() : config));
    }
    if (!simulate.empty()) settings.simulate = simulate;
    return settings;
  };
  auto settings = options.reload();
  if (!settings) return say(settings.error().message);
  options.settings = std::move(*settings);
  if (check) {
    const std::string path = config.empty() ? default_config() : config;
    std::string partitions;
    for (const Partition& one : options.settings.partitions) {
      partitions += (partitions.empty() ? "" : ", ") + one.name + (one.is_default ? "*" : "");
    }
    fmt::print("aliquotd: {}; partitions: {}\n",
               fs::exists(path) ? "the settings in " + path + " are fine"
                                : "there are no settings in " + path + ", and none are needed",
               partitions);
    return 0;
  }
  // A daemon with places of its own shares none with the machine's.
  const bool own = !options.socket.empty() || !options.state.empty();
  if (options.socket.empty()) {
    options.socket = default_socket();
    if (const auto made = make_socket_folder(fs::path(options.socket).parent_path()); !made) {
      return say(made.error().message);
    }
  }
  if (options.state.empty()) options.state = default_state();
  if (options.run.empty()) {
    options.run = own ? options.state / "run" : fs::path(default_socket()).parent_path();
  }
  options.run = fs::absolute(options.run).lexically_normal();
  options.socket = fs::absolute(options.socket);
  options.state = fs::absolute(options.state);
  options.stepd = node::find_part(
      {"aliquot-stepd", "../libexec/aliquot/aliquot-stepd", "../lib/aliquot/aliquot-stepd"},
      "/usr/libexec/aliquot/aliquot-stepd");
  options.library = node::find_part({"../lib/libaliquot.so", "../lib/aliquot/libaliquot.so"},
                                    "/usr/lib/aliquot/libaliquot.so");
  options.standin =
      node::find_part({"../standin", "../lib/aliquot/standin"}, "/usr/lib/aliquot/standin");
  options.commands = node::find_part({"../libexec/aliquot/commands"}, "");

  std::string log = options.settings.log_file;
  if (log.empty() && !foreground) {
    std::error_code error;
    fs::create_directories(options.state, error);
    log = options.state / "aliquotd.log";
  }
  return node::run_service(
      "aliquotd", {.log = log, .level = options.settings.log_level, .foreground = foreground},
      [&](const std::function<void()>& ready) { return run_daemon(options, ready); });
}

}  // namespace
}  // namespace aliquot::engine

int main(int argc, char** argv) {
  // Until it is listened to: a reload that comes while we start must not end us.
  sigset_t hangup;
  ::sigemptyset(&hangup);
  ::sigaddset(&hangup, SIGHUP);
  ::pthread_sigmask(SIG_BLOCK, &hangup, nullptr);
  try {
    return aliquot::engine::serve(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "aliquotd: {}\n", error.what());
    return 1;
  }
}
