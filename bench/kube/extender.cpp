// The extender's handlers at scale, JSON in and JSON out, with an API server that answers at once:
//   1. 1,000 nodes of 8 GPUs and 10,000 waiting pods: what a filter, a ranking and a bind take
//   while
//      the pods are placed, what a filter takes once all is full, pods a second, and memory.
//   2. The published GPU trace (where there is one): how much of the GPUs is given away when as
//   much
//      has been asked for as there is, by the policies through the extender.
// usage: bench_kube_extender [nodes] [pods]      exit 1 if a bar of the first part is missed
//
// The trace is looked for in $ALIQUOT_OPENB, or in ../shared/data/openb.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <random>

#include "base/clock.hpp"
#include "kube/model/testing.hpp"
#include "kube/scheduler/extender.hpp"
#include "sim/file.hpp"
#include "sim/order.hpp"
#include "sim/trace.hpp"
#include "sim/workload.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

// Says yes to everything, when it is asked to go on; and says what a watch would.
class YesApi final : public Api {
 public:
  void send(ApiRequest request, Done done) override {
    if (request.method == "PATCH") patched_ = std::move(request.body);
    waiting_.push_back(std::move(done));
  }
  std::unique_ptr<Watch> watch(std::string, OnLine, OnEnd) override { return nullptr; }

  void run() {
    while (!waiting_.empty()) {
      const Done done = std::move(waiting_.front());
      waiting_.pop_front();
      done(ApiResponse{200, "{}"});
    }
  }
  [[nodiscard]] const std::string& patched() const { return patched_; }

 private:
  std::deque<Done> waiting_;
  std::string patched_;
};

// Of this thread: a handler waits for nobody, and what else the machine does is not its doing.
double cpu_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

struct Times {
  std::vector<double> all;  // milliseconds
  void add(double start) { all.push_back(cpu_ms() - start); }
  [[nodiscard]] double at(double part) {
    if (all.empty()) return 0;
    std::ranges::sort(all);
    return all[static_cast<std::size_t>(part * static_cast<double>(all.size() - 1))];
  }
  std::string text() {
    return fmt::format("p50 {:.3f} ms, p99 {:.3f} ms, most {:.3f} ms", at(0.5), at(0.99), at(1));
  }
};

// kube-scheduler's side of it.
class Driver {
 public:
  explicit Driver(StateSettings settings)
      : state_(ClusterState::create(std::move(settings), key_, clock_).value()),
        extender_(std::make_unique<Extender>(*state_, api_, key_, clock_, ExtenderHooks())) {}

  void add_node(const std::string& name, const NodeGpus& gpus, const std::string& cpus) {
    state_->see_node(read_node(json::value(test::node_object(name, gpus, cpus)), Names()).value());
  }
  void see(const json::object& pod) {
    state_->see_pod(read_pod(json::value(pod), Names()).value());
  }

  // The best of them.
  std::string rank(const json::object& pod, const json::array& fitting) {
    const std::string ranked = json::serialize(json::object{{"Pod", pod}, {"NodeNames", fitting}});
    const double start = cpu_ms();
    const std::string scores = extender_->prioritize(ranked);
    rank_times.add(start);
    std::string best;
    std::int64_t most = -1;
    const json::value priorities = json::parse(scores);
    for (const json::value& one : priorities.as_array()) {
      if (one.at("Score").as_int64() <= most) continue;
      most = one.at("Score").as_int64();
      best = std::string(one.at("Host").as_string());
    }
    return best;
  }

  // Where it went; empty: nowhere.
  std::string schedule(json::object& pod, const json::array& nodes) {
    const std::string asked = json::serialize(json::object{{"Pod", pod}, {"NodeNames", nodes}});
    double start = cpu_ms();
    const std::string filtered = extender_->filter(asked);
    filter_times.add(start);
    const json::value result = json::parse(filtered);
    const json::array& fitting = result.at("NodeNames").as_array();
    if (fitting.empty()) return {};
    const std::string best = rank(pod, fitting);
    const std::string order =
        json::serialize(json::object{{"PodName", pod.at("metadata").at("name")},
                                     {"PodNamespace", "ns"},
                                     {"PodUID", pod.at("metadata").at("uid")},
                                     {"Node", best}});
    std::string answer;
    start = cpu_ms();
    extender_->bind(order, [&](std::string text) { answer = std::move(text); });
    api_.run();
    bind_times.add(start);
    if (!json::parse(answer).at("Error").as_string().empty()) {
      fmt::print(stderr, "bench_kube_extender: {}\n", answer);
      std::exit(1);
    }
    // What the watch says then.
    const json::value patch = json::parse(api_.patched());
    pod["metadata"].as_object()["annotations"] = patch.at("metadata").at("annotations");
    pod["spec"].as_object()["nodeName"] = best;
    see(pod);
    return best;
  }

  ClusterState& state() { return *state_; }
  Times filter_times;
  Times rank_times;
  Times bind_times;

 private:
  ManualClock clock_{WallTime(1'700'000'000'000)};
  const SealKey key_ = test::key();
  YesApi api_;
  std::unique_ptr<ClusterState> state_;
  std::unique_ptr<Extender> extender_;
};

// What is in memory now.
double memory_mib() {
  const auto text = sim::read_file("/proc/self/statm");
  if (!text) return 0;
  const double pages = std::atof(text->substr(text->find(' ')).c_str());
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20U);
}

// A pod as long as real ones are.
json::object long_pod(const std::string& name, const std::vector<test::ContainerSpec>& containers) {
  json::object pod = test::pod_object(name, containers);
  json::array environment;
  for (int i = 0; i < 60; ++i) {
    environment.push_back(json::object{{"name", fmt::format("VARIABLE_{}", i)},
                                       {"value", "a value of an environment variable"}});
  }
  pod["spec"].as_object()["containers"].as_array()[0].as_object()["env"] = std::move(environment);
  return pod;
}

bool scale(int nodes, int pods) {
  std::mt19937 random(42);
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  std::vector<json::object> waiting;
  for (int i = 0; i < pods; ++i) {
    std::vector<test::ContainerSpec> containers;
    const int kind = draw(20);
    if (kind < 12) {
      containers = {test::share(1 + draw(79))};
    } else if (kind < 15) {
      containers = {test::share(1 + draw(40), "a"), test::share(1 + draw(40), "b")};
    } else {
      containers = {test::whole(1 << draw(4))};
    }
    containers[0].cpus = fmt::format("{}m", 250 * (1 + draw(32)));
    waiting.push_back(long_pod(fmt::format("pod-{:05}", i), containers));
  }
  const double before = memory_mib();
  Driver driver({});
  json::array names;
  for (int i = 0; i < nodes; ++i) {
    const std::string name = fmt::format("worker-{:04}.example.internal", i);
    driver.add_node(name, test::node_gpus(name, std::vector<Bytes>(8, gib(80))), "128");
    names.emplace_back(name);
  }
  for (const json::object& pod : waiting) driver.see(pod);
  const double seen = memory_mib();
  const double start = cpu_ms();
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (driver.schedule(waiting[i], names).empty()) left.push_back(i);
  }
  const double took = (cpu_ms() - start) / 1e3;
  const double placed = static_cast<double>(waiting.size() - left.size());
  fmt::print("{} nodes of 8 GPUs, {} pods waiting ({} of them placed, {} left)\n", nodes, pods,
             placed, left.size());
  fmt::print("  filter      {}\n", driver.filter_times.text());
  fmt::print("  prioritize  {}\n", driver.rank_times.text());
  fmt::print("  bind        {} (two requests that are answered at once)\n",
             driver.bind_times.text());
  const double filter_p99 = driver.filter_times.at(0.99);
  const double bind_p99 = driver.bind_times.at(0.99);
  fmt::print("  {:.0f} pods/s placed, with kube-scheduler's side of the JSON; all by CPU time\n",
             placed / took);

  // Those that are left are tried over and over.
  driver.filter_times = {};
  for (std::size_t i = 0; i < std::min<std::size_t>(left.size(), 2'000); ++i) {
    static_cast<void>(driver.schedule(waiting[left[i]], names));
  }
  const double full_p99 = driver.filter_times.at(0.99);
  fmt::print("  filter, full {}\n", driver.filter_times.text());
  fmt::print("  memory      {:.0f} MiB for nodes and pods, {:.0f} MiB after all decisions\n",
             seen - before, memory_mib() - before);
  const bool good = filter_p99 <= 10 && full_p99 <= 10 && bind_p99 <= 50 && placed / took >= 100;
  if (!good) fmt::print("  MISSED: filter ≤ 10 ms and bind ≤ 50 ms at p99, 100 pods/s\n");
  return good;
}

// kube-scheduler's own sums.
struct Rest {
  std::int64_t cpus = 0;
  std::int64_t memory = 0;
};

// `knows`: the policy is told what the trace asks for. `all`: it ranks nodes for pods without GPUs,
// too; else kube-scheduler spreads those.
double replay(const sim::Workload& workload, const sim::Order& order, const std::string& policy,
              bool knows, bool all) {
  StateSettings settings{.unit = mib(1), .policy = policy};
  if (knows) {
    settings.profile.clear();
    for (core::ProfileEntry entry : workload.profile) {
      if (entry.request.gpus) {
        // Shares are asked for by memory here.
        if (auto* amounts = std::get_if<core::Amounts>(&entry.request.gpus->what)) {
          *amounts = {mib(amounts->compute->value() / 10), std::nullopt};
        }
      }
      entry.request.memory = Bytes(0);
      settings.profile.push_back(std::move(entry));
    }
  }
  Driver driver(std::move(settings));
  std::map<std::string, Rest> rests;
  for (const core::Node& node : workload.nodes) {
    NodeGpus gpus =
        test::node_gpus(node.id.value(), std::vector<Bytes>(node.gpus.size(), mib(1'000)));
    gpus.unit = mib(1);
    for (std::size_t i = 0; i < node.gpus.size(); ++i) gpus.gpus[i].model = node.gpus[i].model;
    driver.add_node(node.id.value(), gpus, fmt::format("{}m", node.cpus));
    rests[node.id.value()] = {node.cpus.value(), node.memory.value()};
  }
  std::int64_t allocated = 0;
  int number = 0;
  for (const auto kind : order.arrivals) {
    const core::Request& request = workload.kinds[kind].request;
    json::array fitting;
    std::string emptiest;
    for (const auto& [name, rest] : rests) {
      if (rest.cpus < request.cpus.value() || rest.memory < request.memory.value()) continue;
      fitting.emplace_back(name);
      if (emptiest.empty() || rest.cpus > rests[emptiest].cpus) emptiest = name;
    }
    if (fitting.empty()) continue;
    std::string node = emptiest;
    test::ContainerSpec container{"c", Role::app, {}, fmt::format("{}m", request.cpus)};
    if (request.gpus) {
      if (const auto* amounts = std::get_if<core::Amounts>(&request.gpus->what)) {
        container.limits["aliquot.dev/gpu-mem"] = std::to_string(amounts->compute->value() / 10);
      } else {
        container.limits["aliquot.dev/gpu"] = std::to_string(request.gpus->count);
      }
    }
    json::object pod = test::pod_object(fmt::format("p{}", number++), {container});
    if (request.gpus) {
      driver.see(pod);
      node = driver.schedule(pod, fitting);
      if (node.empty()) continue;
      allocated += workload.kinds[kind].milli;
    } else {
      if (all) node = driver.rank(pod, fitting);
      pod["spec"].as_object()["nodeName"] = node;
      driver.see(pod);
    }
    rests[node].cpus -= request.cpus.value();
    rests[node].memory -= request.memory.value();
  }
  return 100.0 * static_cast<double>(allocated) /
         static_cast<double>(workload.gpus * sim::kMilliPerGpu);
}

void published() {
  const char* given = std::getenv("ALIQUOT_OPENB");
  const std::filesystem::path folder = given != nullptr ? given : "../shared/data/openb";
  const auto node_text = sim::read_file(folder / "openb_node_list_gpu_node.csv");
  const auto pod_text = sim::read_file(folder / "openb_pod_list_default.csv");
  if (!node_text || !pod_text) {
    fmt::print("the published trace: skipped, it is not in {}\n", folder.string());
    return;
  }
  const auto nodes = sim::parse_nodes(*node_text, "nodes").value();
  const auto pods = sim::parse_pods(*pod_text, "pods").value();
  const auto workload = sim::make_workload(nodes, pods, 1, kWholeGpu).value();
  const auto order = sim::draw_order(workload, sim::Draw::published, 42, 100);
  fmt::print("the published trace (default, seed 42), GPUs given away at 100 % asked for\n");
  struct Row {
    const char* text;
    const char* policy;
    bool knows;
    bool all;
  };
  for (const Row& row : {Row{"best-fit", "best-fit", false, false},
                         Row{"fgd, which knows the trace", "fgd", true, false},
                         Row{"aliquot, with the generic profile", "aliquot", false, false},
                         Row{"aliquot, which knows the trace", "aliquot", true, false},
                         Row{"best-fit, of all pods", "best-fit", false, true},
                         Row{"fgd, of all pods", "fgd", true, true},
                         Row{"aliquot, of all pods", "aliquot", true, true}}) {
    fmt::print("  {:<36} {:.2f} %\n", row.text,
               replay(workload, order, row.policy, row.knows, row.all));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace aliquot::kube

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::off);
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 1'000;
  const int pods = argc > 2 ? std::atoi(argv[2]) : 10'000;
  const bool good = aliquot::kube::scale(nodes, pods);
  aliquot::kube::published();
  return good ? 0 : 1;
}
