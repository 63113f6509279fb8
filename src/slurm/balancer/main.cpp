// aliquot-balancer: reads its options and settings, says what is wrong with them, and runs the
// loop.
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "node/service.hpp"
#include "slurm/balancer/loop.hpp"
#include "slurm/client.hpp"
#include "slurm/node_conf.hpp"
#include "slurm/site_settings.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::slurm {
namespace {

const node::Program kProgram{
    "aliquot-balancer", ALIQUOT_VERSION, "has Slurm prefer the nodes whose GPUs are least busy",
    std::string(kSettingsPath),
    "It runs beside slurmctld, as root or as SlurmUser. SIGTERM ends it and gives every node back "
    "the\nweight that slurm.conf says."};

// Before any thread starts: all of them inherit the mask.
int open_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return ::signalfd(-1, &set, SFD_CLOEXEC);
}

Result<void> serve(const SiteSettings& settings, const std::function<void()>& ready) {
  const auto mode = TRY(parse_balance_mode(settings.balancer.mode));
  const auto endpoint = TRY(find_endpoint(settings));
  auto receiver =
      TRY(SampleReceiver::create(settings.balancer.host, endpoint.port, endpoint.munge_socket));
  const int stop = open_signals();
  auto client = TRY(open_client({}, settings.slurm.conf));
  spdlog::info("aliquot-balancer {} for Slurm {}: mode {}, UDP port {}", ALIQUOT_VERSION,
               client->version(), settings.balancer.mode, receiver.port());
  ready();
  const sys::SystemClock clock;
  TRY(run_loop(receiver, *client, {mode, settings.balancer.state}, clock, stop));
  spdlog::info("the nodes have their own weights again");
  return {};
}

int run(const node::ServiceOptions& options) {
  const auto settings = load_settings(options.config);
  if (!settings) return node::complain(kProgram.name, settings.error().message);
  const int status = node::run_service(kProgram.name, options,
                                       [&](const auto& ready) { return serve(*settings, ready); });
  spdlog::default_logger()->flush();
  std::fflush(nullptr);
  ::_exit(status);  // libslurm may have threads that wait for slurmctld
}

}  // namespace
}  // namespace aliquot::slurm

int main(int argc, char** argv) {
  return aliquot::node::service_main(argc, argv, aliquot::slurm::kProgram, aliquot::slurm::run);
}
