// aliquot-balancer: reads its options and settings, says what is wrong with them, and runs the
// loop.
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "node/service.hpp"
#include "slurm/balancer/loop.hpp"
#include "slurm/client.hpp"
#include "slurm/endpoint.hpp"
#include "slurm/settings.hpp"

namespace aliquot::slurm {
namespace {

constexpr const char* kHelp =
    R"(aliquot-balancer - has Slurm prefer the nodes whose GPUs are least busy

usage: aliquot-balancer [option…]

  --config FILE       read the settings from here (/etc/aliquot/slurm.toml)
  --foreground        stay in the foreground, log to stderr
  --log FILE          log to this file (in the background: /var/log/aliquot-balancer.log)
  --log-level LEVEL   debug, info, warn or error (info)
  --help, --version

It runs beside slurmctld, as root or as SlurmUser. SIGTERM ends it and gives every node back the
weight that slurm.conf says.
)";

int say(std::string_view text) {
  fmt::print(stderr, "aliquot-balancer: {}\n", text);
  return 1;
}

struct Options {
  std::string config;
  std::string log;
  std::string level = "info";
  bool foreground = false;
};

// The exit status, where the command line is all there is to do.
std::optional<int> read_options(int argc, char** argv, Options& options) {
  enum : int { kConfig = 256, kForeground, kLog, kLevel, kHelpOption, kVersion };
  static constexpr std::array<option, 7> kOptions{{
      {"config", required_argument, nullptr, kConfig},
      {"foreground", no_argument, nullptr, kForeground},
      {"log", required_argument, nullptr, kLog},
      {"log-level", required_argument, nullptr, kLevel},
      {"help", no_argument, nullptr, kHelpOption},
      {"version", no_argument, nullptr, kVersion},
      {nullptr, 0, nullptr, 0},
  }};
  for (int choice = 0; (choice = ::getopt_long(argc, argv, "", kOptions.data(), nullptr)) != -1;) {
    switch (choice) {
      case kConfig:
        options.config = optarg;
        break;
      case kForeground:
        options.foreground = true;
        break;
      case kLog:
        options.log = optarg;
        break;
      case kLevel:
        options.level = optarg;
        break;
      case kHelpOption:
        std::fputs(kHelp, stdout);
        return 0;
      case kVersion:
        fmt::print("aliquot-balancer {}\n", ALIQUOT_VERSION);
        return 0;
      default:
        return say("try --help");
    }
  }
  if (optind < argc) return say(fmt::format("what is {}? Try --help", quote(argv[optind])));
  return std::nullopt;
}

// Before any thread starts: all of them inherit the mask.
int open_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return ::signalfd(-1, &set, SFD_CLOEXEC);
}

Result<void> serve(const Settings& settings, node::Background& background) {
  const auto mode = TRY(parse_balance_mode(settings.balancer.mode));
  const auto endpoint = TRY(find_endpoint(settings));
  auto receiver =
      TRY(SampleReceiver::create(settings.balancer.host, endpoint.port, endpoint.munge_socket));
  const int stop = open_signals();
  auto client = TRY(open_client({}, settings.slurm.conf));
  spdlog::info("aliquot-balancer {} for Slurm {}: mode {}, UDP port {}", ALIQUOT_VERSION,
               client->version(), settings.balancer.mode, receiver.port());
  background.ready();
  const SystemClock clock;
  return run_loop(receiver, *client, {mode, settings.balancer.state}, clock, stop);
}

int run(int argc, char** argv) {
  Options options;
  if (const auto status = read_options(argc, argv, options)) return *status;
  const auto settings = load_settings(options.config);
  if (!settings) return say(settings.error().message);
  node::Background background;
  if (!options.foreground) {
    const auto parent = background.enter();
    if (!parent) return say(parent.error().message);
    if (*parent) return **parent;
    if (options.log.empty()) options.log = "/var/log/aliquot-balancer.log";
  }
  if (const auto opened = node::open_log("aliquot-balancer", options.log, options.level); !opened) {
    return say(opened.error().message);
  }
  const auto served = serve(*settings, background);
  if (!served) {
    if (!options.log.empty()) spdlog::error("{}", served.error().message);
    say(served.error().message);
  } else {
    spdlog::info("the nodes have their own weights again");
  }
  spdlog::default_logger()->flush();
  std::fflush(nullptr);
  ::_exit(served ? 0 : 1);  // libslurm may have threads that wait for slurmctld
}

}  // namespace
}  // namespace aliquot::slurm

int main(int argc, char** argv) {
  try {
    return aliquot::slurm::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "aliquot-balancer: {}\n", error.what());
    return 1;
  }
}
