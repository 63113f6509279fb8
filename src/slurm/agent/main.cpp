// aliquot-agent: reads its options and settings, says what is wrong with them, and serves the node.
//
// The loop answers requests; one worker is the agent's, since it waits for MPS; another asks the
// driver, which takes its time, too. systemd is told that all three go on. A third one asks
// slurmctld, for which nobody waits: a step only for a moment.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "core/watchdog.hpp"
#include "enforce/abi.h"
#include "net/server.hpp"
#include "node/node.hpp"
#include "node/notify.hpp"
#include "node/places.hpp"
#include "node/service.hpp"
#include "node/worker.hpp"
#include "slurm/agent/agent.hpp"
#include "slurm/agent/job_uses.hpp"
#include "slurm/agent/liaison.hpp"
#include "slurm/agent/node_look.hpp"
#include "slurm/agent/node_web.hpp"
#include "slurm/agent/user_names.hpp"
#include "slurm/node_conf.hpp"
#include "slurm/samples.hpp"
#include "slurm/setup_files.hpp"
#include "slurm/site_settings.hpp"
#include "sys/fd.hpp"
#include "sys/folder.hpp"
#include "sys/host_name.hpp"
#include "sys/identity.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::slurm {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using boost::system::error_code;

constexpr Millis kSampleEvery = seconds(1);  // while there are no shares to watch
// To the balancer; a little less, so that every fourth look is one.
constexpr Millis kReportEvery = Millis(950);
constexpr Millis kLookEvery = Millis(250);
// Where there is no GPU: the driver may come after us.
constexpr Millis kSeekEvery = seconds(3);
// For so long a job's first step waits for slurmctld's word. It knows which words the job was
// submitted with; what the job may have at most the step knows as well.
constexpr Millis kGrace = seconds(1);
// The end of a job waits so long at most for a look at its GPUs, and looks are so far apart for it.
constexpr Millis kLastLook = seconds(2);
constexpr Millis kLastLooksApart = Millis(100);
// A worker that has been busy for so long with one thing is busy for ever: the driver may take its
// time, but not as much.
constexpr Millis kHung = seconds(90);

const node::Program kProgram{
    "aliquot-agent", ALIQUOT_VERSION,
    "holds the Slurm jobs of this node to their shares of its GPUs", std::string(kSettingsPath),
    "Runs as root beside slurmd. Jobs go on without it, and are held again when it is back."};

class AgentLoop {
 public:
  AgentLoop(Agent& agent, Liaison& liaison, node::Node& machine, SampleSender* sender,
            NodeGpus node, const node::Notifier& notifier, const SiteSettings& settings)
      : agent_(agent),
        liaison_(liaison),
        machine_(machine),
        sender_(sender),
        node_(std::move(node)),
        notifier_(notifier),
        look_({agent_, machine_.enforcer(), node_, names_, clock_,
               machine_.devices().driver_version()}),
        signals_(context_, SIGTERM, SIGINT),
        looking_(context_),
        sampling_(context_),
        seeking_(context_),
        beating_(context_),
        web_(context_, worker_, look_, settings.page, {.users = settings.user_metrics}) {}

  // Until it is told to stop. True: there are GPUs now where there were none, and all begins anew.
  Result<bool> run(const std::string& socket, const std::function<void()>& ready) {
    auto server = TRY(
        net::Server::listen(context_, {.path = socket, .mode = 0666, .connections_per_user = 16},
                            [this](const net::Request& request, const net::Responder& respond) {
                              handle(request, respond);
                            }));
    signals_.async_wait([this](error_code error, int number) {
      if (error) return;
      spdlog::info("signal {}: stopping; jobs go on", number);
      context_.stop();
    });
    // Jobs are held without it.
    if (const auto open = web_.listen(); !open) spdlog::error("no page: {}", open.error().message);
    looked_ = sampled_ = clock_.mono();
    look();
    sample();
    beat();
    if (node_.devices.empty()) seek();
    ready();
    notifier_.ready();
    spdlog::info("listening on {}", socket);
    context_.run();
    for (node::Worker* worker : {&worker_, &monitor_, &slurm_}) worker->stop();
    return found_;
  }

 private:
  void handle(const net::Request& request, const net::Responder& respond) {
    const std::string what = request.method + " " + request.path;
    const bool step = what == "POST /v1/slurm/grant" || what == "POST /v1/slurm/exit" ||
                      what == "POST /v1/slurm/drained";
    if (step && request.peer.uid != ::geteuid()) {
      return respond({403, "only slurmstepd may ask for a job's share\n", "text/plain"});
    }
    if (what == "GET /v1/slurm/agent") {
      // Anybody may ask this, as often as he likes: nobody's step waits behind it.
      std::vector<std::string> gpus;
      for (const auto& device : node_.devices) {
        // A model's name is plain: gres.conf has it as the type.
        gpus.push_back(fmt::format("{{\"model\":\"{}\",\"memory\":{}}}",
                                   core::model_name(device.gpu), device.gpu.memory));
      }
      return respond(
          {200, fmt::format("{{\"version\":\"{}\",\"node\":\"{}\",\"jobs\":{},\"gpus\":[{}]}}",
                            ALIQUOT_VERSION, node_.node, held_.load(), fmt::join(gpus, ","))});
    }
    if (web_.handle(request, respond)) return;
    if (!step) return respond({404, "there is nothing under this path\n", "text/plain"});
    if (what == "POST /v1/slurm/drained") {
      slurm_.post([this] { liaison_.node_was_drained(); });
      return respond({200, "", "text/plain"});
    }
    auto facts = parse_step_facts(request.body);
    if (!facts) return respond({400, facts.error().message, "text/plain"});
    const Pid stepd(facts->stepd > 0 ? static_cast<pid_t>(facts->stepd) : request.peer.pid);
    if (what == "POST /v1/slurm/exit") {
      return leave(*facts, stepd, respond);
    }
    ask_for(std::make_shared<Asking>(std::move(*facts), stepd, respond));
  }

  // A step that waits for its answer.
  struct Asking {
    Asking(StepFacts step, Pid process, net::Responder responder)
        : facts(std::move(step)), stepd(process), respond(std::move(responder)) {}
    const StepFacts facts;
    const Pid stepd;
    const net::Responder respond;
    std::atomic<bool> done = false;
  };

  void ask_for(const std::shared_ptr<Asking>& step) {
    worker_.post([this, step] {
      if (!agent_.wants_word(step->facts)) return answer(step, std::nullopt);
      slurm_.post([this, step] {
        if (step->done) return;  // it is asked for later, with all others
        const JobId id(step->facts.job);
        auto word = liaison_.job(id);
        worker_.post([this, step, id, word = std::move(word)] {
          if (!step->done) answer(step, word);
          agent_.heard(id, word);
        });
      });
      asio::post(context_, [this, step] {
        auto timer = std::make_shared<asio::steady_timer>(
            context_, std::chrono::milliseconds(kGrace.value()));
        timer->async_wait([this, step, timer](error_code error) {
          if (error || step->done) return;
          worker_.post([this, step] {
            if (!step->done) answer(step, std::nullopt);
          });
        });
      });
    });
  }

  void answer(const std::shared_ptr<Asking>& step, const Agent::Word& word) {
    step->done = true;
    auto granted = agent_.grant(step->facts, step->stepd, word);
    held_ = agent_.jobs();
    net::Response response{200, granted ? std::move(*granted) : "", "text/plain"};
    if (!granted) {
      spdlog::error("job {}: {}", step->facts.job, granted.error().message);
      // 503: not the job's fault. It is asked again, and then goes to another node.
      const bool ours = is_nodes_fault(granted.error());
      if (ours && !agent_.closed()) slurm_.post([this] { liaison_.trouble(); });
      response = {ours ? 503 : 409, granted.error().message, "text/plain"};
    }
    asio::post(context_, [step, response = std::move(response)]() mutable {
      step->respond(std::move(response));
    });
  }

  // A step that is about to end.
  struct Leaving {
    Leaving(StepFacts step, Pid process, net::Responder responder)
        : facts(std::move(step)), stepd(process), respond(std::move(responder)) {}
    const StepFacts facts;
    const Pid stepd;
    const net::Responder respond;
    bool done = false;  // the loop's
  };

  // It is answered when slurmctld knows what the job has used, and does not wait long for that. A
  // job whose GPU breaks ends at once, and takes no remark any more when that is over: the GPUs are
  // looked at once more before its last step is.
  void leave(const StepFacts& facts, Pid stepd, const net::Responder& respond) {
    const auto step = std::make_shared<Leaving>(facts, stepd, respond);
    worker_.post([this, step] {
      asio::post(context_, [this, step, last = agent_.is_last(step->facts, step->stepd)] {
        if (!last) return finish(step);
        leaving_.push_back(step);
        sample_soon();
        auto timer = std::make_shared<asio::steady_timer>(
            context_, std::chrono::milliseconds(kLastLook.value()));
        timer->async_wait([this, step, timer](error_code error) {
          if (!error) finish(step);
        });
      });
    });
  }

  void finish(const std::shared_ptr<Leaving>& step) {
    if (std::exchange(step->done, true)) return;
    worker_.post([this, step] {
      agent_.leave(step->facts, step->stepd);
      // Nothing is noted while slurmctld is away.
      const bool in_vain = agent_.slurmctld_is_away();
      if (in_vain) let_end(step);
      slurm_.post([this, news = agent_.news(), step, in_vain] {
        liaison_.tell(news);
        if (!in_vain) ending_.push_back(step);
        if (!std::exchange(noting_, true)) note_uses();
      });
    });
  }

  void let_end(const std::shared_ptr<Leaving>& step) {
    asio::post(context_, [step] { step->respond({200, "", "text/plain"}); });
  }

  // slurmctld's worker's: one at a time, as steps' questions wait behind it.
  void note_uses() {
    noting_ = liaison_.note_use();
    std::erase_if(ending_, [this](const auto& step) {
      if (liaison_.owes(JobId(step->facts.job))) return false;
      let_end(step);
      return true;
    });
    if (noting_) slurm_.post([this] { note_uses(); });
  }

  // Unless the loop is stopped first.
  void after(asio::steady_timer& timer, Millis pause, void (AgentLoop::*next)()) {
    timer.expires_after(std::chrono::milliseconds(pause.value()));
    timer.async_wait([this, next](error_code error) {
      if (!error) (this->*next)();
    });
  }

  void look() {
    worker_.post([this] {
      agent_.look_after();
      held_ = agent_.jobs();
      if (!std::exchange(asking_now_, true)) {
        ask_slurmctld(agent_.questions(), agent_.news());
      }
      asio::post(context_, [this] {
        looked_ = clock_.mono();
        after(looking_, kLookEvery, &AgentLoop::look);
      });
    });
  }

  void ask_slurmctld(const std::vector<JobId>& jobs, const News& news) {
    slurm_.post([this, jobs, news] {
      for (const JobId id : jobs) {
        auto word = liaison_.job(id);
        const bool answers = word || word.error().code == Error::Code::not_found;
        worker_.post([this, id, word = std::move(word)] { agent_.heard(id, word); });
        if (!answers) break;
      }
      liaison_.tell(news);
      worker_.post([this] { asking_now_ = false; });
    });
  }

  void sample() {
    // A driver that takes longer than a second is not asked twice at once.
    if (!std::exchange(sampling_now_, true)) {
      began_ = clock_.mono();
      worker_.post([this, leaving = std::exchange(leaving_, {})] {
        monitor_.post([this, leaving, running = agent_.running()] {
          auto views = agent_.look_at(machine_.devices(), running);
          if (views) names_.add(running, *views);
          if (!views) {
            spdlog::warn("cannot sample the GPUs: {}", views.error().message);
          } else {
            report(*views);
          }
          // The next look begins when this one has been gone through: there are never two.
          worker_.post([this, leaving, views = std::move(views)]() mutable {
            if (views) agent_.observe(*views);
            look_.observe(views ? std::optional(std::move(*views)) : std::nullopt);
            asio::post(context_, [this, leaving] {
              sampling_now_ = false;
              sampled_ = clock_.mono();
              for (const auto& step : leaving) finish(step);
              if (!leaving_.empty()) sample_soon();
            });
          });
        });
      });
    }
    after(sampling_, machine_.enforcer().watching() ? core::kWatchInterval : kSampleEvery,
          &AgentLoop::sample);
  }

  void sample_soon() {
    const Millis passed = clock_.mono() - began_;
    after(sampling_, std::max(kLastLooksApart - passed, Millis(0)), &AgentLoop::sample);
  }

  void seek() {
    monitor_.post([this] {
      const auto opened = gpu::open_devices(std::nullopt);
      const auto gpus = opened ? (*opened)->list() : Result<std::vector<gpu::Device>>();
      asio::post(context_, [this, found = opened && gpus && !gpus->empty()] {
        found_ = found;
        if (found) return context_.stop();
        after(seeking_, kSeekEvery, &AgentLoop::seek);
      });
    });
  }

  void beat() {
    if (!notifier_.every()) return;
    const MonoTime now = clock_.mono();
    if (now - looked_ < kHung && now - sampled_ < kHung) notifier_.alive();
    after(beating_, *notifier_.every(), &AgentLoop::beat);
  }

  void report(const std::vector<node::GpuView>& views) {
    const MonoTime now = clock_.mono();
    if (sender_ == nullptr || now < next_report_) return;
    next_report_ = now + kReportEvery;
    NodeSample sample = node_sample(node_, views);
    uses_.add(
        sample, node_, views,
        [this](const HolderId& job) -> std::optional<Millis> {
          const auto measured = machine_.enforcer().measure(job);
          return measured ? std::optional(measured->gpu_time) : std::nullopt;
        },
        now);
    sender_->send(sample);
  }

  Agent& agent_;
  Liaison& liaison_;
  node::Node& machine_;
  SampleSender* sender_;
  const NodeGpus node_;
  const node::Notifier& notifier_;
  const sys::SystemClock clock_;
  UserNames names_{sys::user_name};
  NodeLook look_;
  MonoTime looked_;   // when the agent's worker was last done with a round
  MonoTime sampled_;  // and the driver's
  MonoTime began_;    // the driver's last one
  MonoTime next_report_;
  JobUses uses_;                       // the monitor's
  std::atomic<std::size_t> held_ = 0;  // jobs
  bool sampling_now_ = false;
  std::vector<std::shared_ptr<Leaving>> leaving_;  // that wait for the next look
  bool asking_now_ = false;                        // slurmctld; the agent's worker's own
  std::vector<std::shared_ptr<Leaving>> ending_;   // until that is noted; slurmctld's worker's own
  bool noting_ = false;                            // its as well
  bool found_ = false;
  asio::io_context context_{1};
  asio::signal_set signals_;
  asio::steady_timer looking_;
  asio::steady_timer sampling_;
  asio::steady_timer seeking_;
  asio::steady_timer beating_;
  node::Worker worker_{"aq-agent"};
  node::Worker monitor_{"aq-monitor"};
  node::Worker slurm_{"aq-slurm"};
  NodeWeb web_;
};

bool needs_marks(const SiteSettings& settings) {
  const auto conf = read_node_conf(settings);
  if (!conf || makes_groups(*conf, read_conf_file)) return false;
  spdlog::info(
      "Slurm makes no control groups for jobs here: to which job a process belongs is also read "
      "from its environment");
  return true;
}

// With the GPUs that there are now. True: it is to be done again, as there are others.
Result<bool> serve_gpus(const SiteSettings& settings, const node::Notifier& notifier,
                        const std::function<void()>& ready) {
  const fs::path run = settings.agent.run_dir;
  std::optional<gpu::StandIn> standin;
  if (!settings.agent.simulate.empty()) {
    standin = gpu::StandIn{
        node::find_part({"../standin", "../lib/aliquot/standin"}, "/usr/lib/aliquot/standin"),
        settings.agent.simulate, run / "standin", true};
  }
  const std::string name =
      settings.agent.node.empty() ? sys::short_host_name() : settings.agent.node;
  spdlog::info("node {}", name);
  const auto machine = TRY(node::Node::open(
      {.run = run,
       .library = node::find_part({"../lib/libaliquot.so", "../lib/aliquot/libaliquot.so"},
                                  "/usr/lib/aliquot/libaliquot.so"),
       .standin = standin,
       .enforce = settings.agent.enforce,
       .compute_limit = settings.share.most_compute()}));

  const std::string conf = slurm_conf_path(settings);
  auto slurm = TRY(open_client("", conf));
  spdlog::info("Slurm {}", slurm->version());
  // Slurm's groups, v1 and v2: /slurm/uid_0/job_7, /system.slice/slurmstepd.scope/job_7.
  if (node::has_public_place(run)) {
    TRY(node::publish_place(ALIQUOT_PLACE_SLURM, "/slurm", run));
  }
  sys::SystemClock clock;
  const NodeGpus node{name, in_gres_order(machine->gpus()), settings.share};
  auto agent = TRY(Agent::create({.run = run,
                                  .node = node,
                                  .enforcer = machine->enforcer(),
                                  .clock = clock,
                                  .by_mark = needs_marks(settings),
                                  .standin = standin}));
  Liaison liaison(*slurm, node, clock);
  std::unique_ptr<SampleSender> sender;
  if (settings.balancer.mode != "off") {
    if (const auto endpoint = find_endpoint(settings)) {
      sender = std::make_unique<SampleSender>(*endpoint);
    } else {
      spdlog::warn("no samples for the balancer: {}", endpoint.error().message);
    }
  }
  const auto done = AgentLoop(*agent, liaison, *machine, sender.get(), node, notifier, settings)
                        .run(settings.agent.socket, ready);
  agent->stop();
  return done;
}

Result<void> serve(const SiteSettings& settings, const std::function<void()>& ready) {
  const auto notifier = node::Notifier::from_environment();
  TRY(sys::make_own_folder(fs::path(settings.agent.socket).parent_path(), 0755));
  TRY(sys::make_own_folder(settings.agent.run_dir, 0711));
  const sys::Fd lock = TRY(sys::lock_folder(settings.agent.run_dir));
  ::umask(0077);
  while (TRY(serve_gpus(settings, notifier, ready))) spdlog::info("there are GPUs now");
  return {};
}

int run(const node::ServiceOptions& options) {
  const auto settings = load_settings(options.config);
  if (!settings) return node::complain(kProgram.name, settings.error().message);
  if (::geteuid() != 0) {
    return node::complain(kProgram.name, "it must be root's: slurmstepd trusts nobody else");
  }
  return node::run_service(kProgram.name, options,
                           [&](const auto& ready) { return serve(*settings, ready); });
}

}  // namespace
}  // namespace aliquot::slurm

int main(int argc, char** argv) {
  return aliquot::node::service_main(argc, argv, aliquot::slurm::kProgram, aliquot::slurm::run);
}
