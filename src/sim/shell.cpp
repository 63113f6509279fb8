#include "sim/shell.hpp"

#include <algorithm>

#include "base/size.hpp"
#include "base/text.hpp"
#include "core/explain.hpp"
#include "core/profile.hpp"
#include "core/request_words.hpp"
#include "sim/ledger_text.hpp"
#include "sim/names.hpp"
#include "sim/shell_text.hpp"
#include "sim/shell_words.hpp"

namespace aliquot::sim {
namespace {

using Words = std::vector<std::string_view>;

// Older samples count as busy.
constexpr Millis kSampleLife = seconds(10);
constexpr std::int64_t kMostCpus = 1'000'000;

Result<std::string> parse_name(std::string_view word) {
  const bool plain =
      std::all_of(word.begin(), word.end(), [](char c) { return c > ' ' && c < 127; });
  if (!word.empty() && word.size() <= 255 && plain) return std::string(word);
  return fail(Error::Code::invalid_argument, "{} is not a name", quote(word));
}

Result<JobId> parse_job(std::string_view word) {
  const auto number = parse_digits(word);
  if (number) return JobId(*number);
  return fail(Error::Code::invalid_argument, "{} is no job: jobs are numbers", quote(word));
}

Result<Bytes> parse_amount(std::string_view key, std::string_view text) {
  const auto size = parse_size(text);
  // Enough for any machine, and nothing that is added up can overflow.
  if (size && *size <= gib(1) * 1024 * 1024) return *size;
  return fail(Error::Code::invalid_argument, "{}={}: write a size such as 16G", key, quote(text));
}

Result<Compute> parse_utilisation(std::string_view text) {
  auto digits = text;
  if (!digits.empty() && digits.back() == '%') digits.remove_suffix(1);
  const auto part = parse_decimal(digits, kWholeGpu.value() / 100);
  if (part && Compute(*part) <= kWholeGpu) return Compute(*part);
  return fail(Error::Code::invalid_argument, "util={}: write a percentage from 0% to 100%",
              quote(text));
}

// The options of a request from the word at `first` on. `--cpus` is short for what a request of one
// task calls `--cpus-per-task`.
Result<core::Request> parse_options(const Words& words, std::size_t first) {
  std::string text;
  for (std::size_t i = first; i < words.size(); ++i) {
    auto word = words[i];
    if (word == "--cpus" || word.substr(0, 7) == "--cpus=") {
      text += "--cpus-per-task";
      word.remove_prefix(6);
    }
    text += word;
    text += ' ';
  }
  return core::parse_request(text);
}

}  // namespace

const std::vector<Shell::Command>& Shell::commands() {
  static const std::vector<Command> all = {
      {"node", "node add NAME cpus=64 memory=256G [overcommit=1.13] [mps=100] [shards=8]",
       "a node without GPUs", &Shell::node},
      {"gpu", "gpu add NODE model=h200 memory=141G [count=4] [mig=1g.10gb] [id=GPU-…]",
       "GPUs of a node", &Shell::gpu},
      {"policy", "policy [NAME]", "how to rank what fits", &Shell::policy},
      {"request", "request JOB OPTIONS",
       "place a job: gpu:1, --gres=mps:25, --gpu-mem=8G, --cpus=4", &Shell::request},
      {"release", "release JOB", "the job has ended", &Shell::release},
      {"resize", "resize JOB OPTIONS", "more or less on the GPUs it has", &Shell::resize},
      {"sample", "sample NODE GPU [util=50%] [foreign=2G] [age=3s]", "what monitoring saw",
       &Shell::sample},
      {"clock", "clock [+5s]", "let time pass; samples are stale after 10s", &Shell::clock},
      {"health", "health NODE GPU ok|draining|lost", "how a GPU is", &Shell::health},
      {"show", "show [nodes|jobs|ledger]", "who holds what", &Shell::show},
      {"why", "why JOB|OPTIONS", "why it does not fit", &Shell::why},
      {"save", "save [FILE]", "keep the ledger", &Shell::save},
      {"restore", "restore [FILE]", "back to the ledger kept", &Shell::restore},
      {"help", "help", "this", &Shell::help},
      {"quit", "quit", "the end", &Shell::quit},
  };
  return all;
}

Shell::Shell(ShellFiles files) : files_(std::move(files)), ledger_(core::Cluster()) {
  // So that samples may be older than the shell.
  clock_.advance(days(1000));
  if (!use_policy(core::policies().front().name)) std::abort();
}

Result<std::string> Shell::execute(std::string_view line) {
  const auto words = split_words(line);
  if (words.empty()) return std::string();
  std::vector<std::string> known;
  for (const auto& command : commands()) {
    if (command.name == words.front()) return (this->*command.action)(words);
    known.emplace_back(command.name);
  }
  return tl::make_unexpected(unknown_name("command", words.front(), known));
}

Result<std::string> Shell::node(const Words& words) {
  if (words.size() < 3 || words[1] != "add") return misused(words);
  const auto settings =
      TRY(Settings::parse(words, 3, {"cpus", "memory", "overcommit", "mps", "shards"}));
  core::Node node;
  node.id = NodeId(TRY(parse_name(words[2])));
  const auto cpus_text = TRY(settings.need("cpus"));
  const auto cpus = parse_decimal(cpus_text, kOneCpu.value());
  if (!cpus || *cpus > kMostCpus * kOneCpu.value()) {
    return fail(Error::Code::invalid_argument, "cpus={}: write a number of CPUs", quote(cpus_text));
  }
  node.cpus = CpuMilli(*cpus);
  node.memory = TRY(parse_amount("memory", TRY(settings.need("memory"))));
  if (const auto text = settings.find("overcommit")) {
    const auto factor = parse_decimal(*text, kWholeGpu.value());
    if (!factor) {
      return fail(Error::Code::invalid_argument, "overcommit={}: write a factor such as 1.13",
                  quote(*text));
    }
    node.compute_limit = Compute(*factor);
  }
  node.mps_per_gpu = TRY(settings.number("mps", 1, 1'000'000, node.mps_per_gpu));
  node.shards_per_gpu = TRY(settings.number("shards", 1, 1'000'000, node.shards_per_gpu));
  TRY(ledger_.cluster().add_node(std::move(node)));
  return std::string();
}

Result<std::string> Shell::gpu(const Words& words) {
  if (words.size() < 3 || words[1] != "add") return misused(words);
  const auto settings = TRY(Settings::parse(words, 3, {"model", "memory", "count", "mig", "id"}));
  const auto node = TRY(find_node(words[2]));
  const auto& host = ledger_.cluster().node(node);
  core::Gpu gpu;
  gpu.model = TRY(parse_name(TRY(settings.need("model"))));
  gpu.memory = TRY(parse_amount("memory", TRY(settings.need("memory"))));
  if (const auto profile = settings.find("mig")) gpu.mig_profile = TRY(parse_name(*profile));
  const auto room = static_cast<std::int64_t>(core::kMaxGpusPerNode - host.gpus.size());
  const auto count = TRY(settings.number("count", 1, std::max<std::int64_t>(1, room), 1));
  if (const auto id = settings.find("id")) {
    if (count > 1)
      return fail(Error::Code::invalid_argument, "id= names one GPU: leave out count=");
    gpu.id = GpuId(TRY(parse_name(*id)));
    TRY(ledger_.cluster().add_gpu(node, std::move(gpu)));
    return std::string();
  }
  std::size_t number = host.gpus.size();
  for (std::int64_t i = 0; i < count; ++number) {
    gpu.id = GpuId(fmt::format("GPU-{}-{}", host.id, number));
    const auto taken = [&](const core::Gpu& other) { return other.id == gpu.id; };
    if (std::any_of(host.gpus.begin(), host.gpus.end(), taken)) continue;
    TRY(ledger_.cluster().add_gpu(node, gpu));
    ++i;
  }
  return std::string();
}

Result<std::string> Shell::policy(const Words& words) {
  if (words.size() > 2) return misused(words);
  if (words.size() == 2) {
    std::vector<std::string> known;
    for (const auto& policy : core::policies()) known.emplace_back(policy.name);
    TRY(parse_names(words[1], "policy", known));
    TRY(use_policy(words[1]));
  }
  return fmt::format("policy {}\n", policy_->name());
}

Result<void> Shell::use_policy(std::string_view name) {
  policy_ = TRY(core::make_policy(name, core::generic_profile()));
  index_ = std::make_unique<core::Index>(ledger_.cluster(), *policy_);
  return {};
}

Result<std::string> Shell::request(const Words& words) {
  if (words.size() < 2) return misused(words);
  const auto job = TRY(parse_job(words[1]));
  const auto request = TRY(parse_options(words, 2));
  if (ledger_.find(job) != nullptr) {
    return fail(Error::Code::already_exists, "job {} holds a grant already", job);
  }
  const auto shape = TRY(ledger_.cluster().shape(request));
  auto placement = index_->place(shape);
  if (!placement) {
    refused_[job] = request;
    return fmt::format("job {}: refused: {}\n", job, explain(request, shape, false));
  }
  auto text = fmt::format("job {}: {}\n", job, format_use(ledger_.cluster(), *placement));
  TRY(ledger_.grant(job, std::move(*placement)));
  refused_.erase(job);
  return text;
}

Result<std::string> Shell::release(const Words& words) {
  if (words.size() != 2) return misused(words);
  const auto job = TRY(parse_job(words[1]));
  const auto use = TRY(ledger_.release(job));
  return fmt::format("job {}: released {}\n", job, format_use(ledger_.cluster(), use));
}

Result<std::string> Shell::resize(const Words& words) {
  if (words.size() < 3) return misused(words);
  const auto job = TRY(parse_job(words[1]));
  const auto request = TRY(parse_options(words, 2));
  const auto* use = ledger_.find(job);
  if (use == nullptr) return fail(Error::Code::not_found, "job {} holds no grant", job);
  TRY(ledger_.resize(job, TRY(resized(*use, request))));
  return fmt::format("job {}: {}\n", job, format_use(ledger_.cluster(), *ledger_.find(job)));
}

// What is not said stays; the GPUs stay in any case.
Result<core::Use> Shell::resized(const core::Use& use, const core::Request& request) const {
  core::Use now = use;
  if (request.cpus != CpuMilli(0)) now.cpus = request.cpus;
  if (request.memory != Bytes(0)) now.memory = request.memory;
  if (!request.gpus) return now;
  const auto shape = TRY(ledger_.cluster().shape(request));
  if (shape.count != use.gpus.size()) {
    return fail(Error::Code::unsupported, "the job keeps its GPUs: it has {}, not {}",
                use.gpus.size(), shape.count);
  }
  const auto& host = ledger_.cluster().node(use.node);
  for (auto& part : now.gpus) {
    const auto& gpu = host.gpus[part.gpu];
    if (((shape.models >> ledger_.cluster().model(use.node, part.gpu)) & 1U) == 0) {
      return fail(Error::Code::unsupported, "the job keeps its GPUs: gpu{} is a {}", part.gpu,
                  core::model_name(gpu));
    }
    const auto portion = core::portion_on(shape.what, host, gpu);
    if (!portion) {
      return fail(Error::Code::unavailable, "that is more than the whole gpu{}", part.gpu);
    }
    part.portion = *portion;
    part.whole = shape.kind == core::Shape::Kind::whole;
  }
  return now;
}

Result<std::string> Shell::sample(const Words& words) {
  if (words.size() < 3) return misused(words);
  const auto settings = TRY(Settings::parse(words, 3, {"util", "foreign", "age"}));
  const auto device = TRY(find_gpu(words[1], words[2]));
  core::GpuSample sample;
  sample.utilisation = TRY(parse_utilisation(settings.find("util").value_or("0")));
  sample.foreign_memory = TRY(parse_amount("foreign", settings.find("foreign").value_or("0")));
  sample.taken = clock_.mono() - TRY(parse_length(settings.find("age").value_or("0s")));
  TRY(ledger_.cluster().observe(device.node, device.gpu, sample));
  ledger_.cluster().expire_samples(clock_.mono(), kSampleLife);
  return std::string();
}

Result<std::string> Shell::clock(const Words& words) {
  if (words.size() > 2) return misused(words);
  if (words.size() == 2) {
    if (words[1].front() != '+') return misused(words);
    clock_.advance(TRY(parse_length(words[1].substr(1))));
    ledger_.cluster().expire_samples(clock_.mono(), kSampleLife);
  }
  return fmt::format("clock {}\n", format_length(clock_.mono() - MonoTime(days(1000))));
}

Result<std::string> Shell::health(const Words& words) {
  if (words.size() != 4) return misused(words);
  const auto device = TRY(find_gpu(words[1], words[2]));
  core::Health health = core::Health::ok;
  if (words[3] == "draining") {
    health = core::Health::draining;
  } else if (words[3] == "lost") {
    health = core::Health::lost;
  } else if (words[3] != "ok") {
    return misused(words);
  }
  TRY(ledger_.cluster().set_health(device.node, device.gpu, health));
  return std::string();
}

Result<std::string> Shell::show(const Words& words) {
  if (words.size() > 2) return misused(words);
  const auto what = words.size() == 2 ? words[1] : std::string_view();
  if (what == "nodes") return format_cluster(ledger_, clock_.mono());
  if (what == "jobs") return format_jobs(ledger_);
  if (what == "ledger") return format_ledger(ledger_);
  if (!what.empty()) return misused(words);
  return format_cluster(ledger_, clock_.mono()) + format_jobs(ledger_);
}

Result<std::string> Shell::why(const Words& words) {
  if (words.size() < 2) return misused(words);
  core::Request request;
  if (words.size() == 2 && is_digits(words[1])) {
    const auto job = TRY(parse_job(words[1]));
    if (const auto* use = ledger_.find(job)) {
      return fmt::format("Job {} holds {}.\n", job, format_use(ledger_.cluster(), *use));
    }
    const auto refused = refused_.find(job);
    if (refused == refused_.end()) {
      return fail(Error::Code::not_found, "no job {} was refused", job);
    }
    request = refused->second;
  } else {
    request = TRY(parse_options(words, 1));
  }
  const auto shape = TRY(ledger_.cluster().shape(request));
  if (const auto placement = index_->place(shape)) {
    return fmt::format("This fits now: {}.\n", format_use(ledger_.cluster(), *placement));
  }
  return explain(request, shape, true);
}

std::string Shell::explain(const core::Request& request, const core::Shape& shape,
                           bool at_length) const {
  const auto explanation =
      core::explain(ledger_, request, core::explain_refusal(ledger_.cluster(), shape));
  if (!at_length) return explanation.summary;
  return fmt::format("{}\n", fmt::join(explanation.sentences, "\n"));
}

Result<std::string> Shell::save(const Words& words) {
  if (words.size() > 2) return misused(words);
  auto text = format_ledger(ledger_);
  if (words.size() == 2) {
    TRY(files_.write(std::string(words[1]), text));
  } else {
    saved_ = std::move(text);
  }
  return fmt::format("saved {} {}\n", ledger_.size(), ledger_.size() == 1 ? "job" : "jobs");
}

Result<std::string> Shell::restore(const Words& words) {
  if (words.size() > 2) return misused(words);
  const auto text = words.size() == 2 ? TRY(files_.read(std::string(words[1]))) : saved_;
  // The same nodes, samples and health, with nobody on them.
  core::Ledger empty = ledger_;
  for (const auto job : empty.jobs()) TRY(empty.release(job));
  ledger_ = TRY(parse_ledger(std::move(empty.cluster()), text));
  index_ = std::make_unique<core::Index>(ledger_.cluster(), *policy_);
  for (const auto job : ledger_.jobs()) refused_.erase(job);
  return fmt::format("restored {} {}\n", ledger_.size(), ledger_.size() == 1 ? "job" : "jobs");
}

Result<std::string> Shell::help(const Words& words) {
  if (words.size() > 1) return misused(words);
  std::string text;
  for (const auto& command : commands()) {
    text += fmt::format("{}\n      {}\n", command.syntax, command.help);
  }
  return text;
}

Result<std::string> Shell::quit(const Words& words) {
  if (words.size() > 1) return misused(words);
  done_ = true;
  return std::string();
}

tl::unexpected<Error> Shell::misused(const Words& words) {
  const auto& all = commands();
  const auto command = std::find_if(all.begin(), all.end(), [&](const Command& candidate) {
    return candidate.name == words.front();
  });
  return fail(Error::Code::invalid_argument, "write: {}", command->syntax);
}

Result<core::NodeIndex> Shell::find_node(std::string_view name) const {
  if (const auto node = ledger_.cluster().find(name)) return *node;
  return fail(Error::Code::not_found, "no node {}", quote(name));
}

Result<Shell::Device> Shell::find_gpu(std::string_view node, std::string_view gpu) const {
  const auto host = TRY(find_node(node));
  const auto& gpus = ledger_.cluster().node(host).gpus;
  const auto number = parse_digits(gpu.substr(0, 3) == "gpu" ? gpu.substr(3) : gpu);
  for (core::GpuIndex i = 0; i < gpus.size(); ++i) {
    if ((number && *number == i) || gpus[i].id.value() == gpu) return Device{host, i};
  }
  return fail(Error::Code::not_found, "node {} has no GPU {}", node, quote(gpu));
}

}  // namespace aliquot::sim
