#include "slurm/client.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "node/service.hpp"
#include "slurm/plugins/client.h"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

// The functions of plugins/client.h, as found in the plugin.
struct Functions {
#define DECLARE(name) decltype(&aliquot_slurm_##name) name = nullptr;
  ALIQUOT_SLURM_FUNCTIONS(DECLARE)
#undef DECLARE
};

std::optional<std::int64_t> positive(std::int64_t value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string_view name : split(list, ',')) {
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

void add_job(const aliquot_slurm_job* job, void* data) {
  SlurmJob out;
  out.id = job->id;
  out.array_job_id = positive(job->array_job_id);
  if (job->array_task_id >= 0) out.array_task_id = job->array_task_id;
  out.array_tasks = job->array_tasks;
  out.uid = job->uid;
  out.gid = job->gid;
  out.submit_s = job->submit;
  out.start_s = job->start;
  out.end_s = job->end;
  if (job->time_limit_minutes >= 0) out.time_limit_s = job->time_limit_minutes * 60;
  out.priority = job->priority;
  out.tasks = job->tasks;
  out.cpus = job->cpus;
  out.restarts = job->restarts;
  out.exit_status = job->exit_status;
  out.name = job->name;
  out.account = job->account;
  out.partition = job->partition;
  out.qos = job->qos;
  out.state = job->state;
  out.reason = job->reason;
  out.state_desc = job->state_desc;
  out.tres_per_node = job->tres_per_node;
  out.tres_requested = job->tres_requested;
  out.admin_comment = job->admin_comment;
  out.comment = job->comment;
  out.command = job->command;
  out.work_dir = job->work_dir;
  out.std_out = job->std_out;
  out.std_err = job->std_err;
  out.exclusive = job->exclusive != 0;
  out.nodes = job->nodes;
  out.required_nodes = names_in(job->required_nodes);
  out.excluded_nodes = names_in(job->excluded_nodes);
  for (std::size_t i = 0; i < job->details; ++i) {
    out.details.push_back({job->detail_nodes[i], job->detail_gres[i]});
  }
  static_cast<std::vector<SlurmJob>*>(data)->push_back(std::move(out));
}

void add_node(const aliquot_slurm_node* node, void* data) {
  static_cast<std::vector<SlurmNode>*>(data)->push_back(
      {.name = node->name,
       .state = node->state,
       .gres = node->gres,
       .extra = node->extra,
       .reason = node->reason,
       .partitions = names_in(node->partitions),
       .weight = node->weight,
       .cpus = node->cpus,
       .cpus_allocated = node->cpus_allocated,
       .memory = mib(node->memory_mib),
       .memory_allocated = mib(node->memory_allocated_mib)});
}

void add_partition(const aliquot_slurm_partition* partition, void* data) {
  static_cast<std::vector<SlurmPartition>*>(data)->push_back(
      {.name = partition->name,
       .billing_weights = partition->billing_weights,
       .qos = partition->qos,
       .is_default = partition->is_default != 0,
       .up = partition->up != 0});
}

class PluginClient final : public SlurmClient {
 public:
  explicit PluginClient(const Functions& functions) : functions_(functions) {}

  [[nodiscard]] std::string version() const override { return functions_.version(); }

  Result<SlurmJob> job(JobId id) override {
    std::vector<SlurmJob> found;
    const int status = functions_.find_job(static_cast<std::uint32_t>(id.value()), add_job, &found);
    TRY(check_found(status, found.empty(), "job", id));
    // An array's first element carries the number of the whole. Once that is forgotten, Slurm
    // answers with the other elements: other jobs.
    const auto exact = std::ranges::find(found, id.value(), &SlurmJob::id);
    TRY(check_found(status, exact == found.end(), "job", id));
    return std::move(*exact);
  }
  Result<std::vector<SlurmJob>> jobs() override {
    std::vector<SlurmJob> found;
    TRY(check(functions_.each_job(add_job, &found)));
    return found;
  }
  Result<std::vector<SlurmNode>> nodes() override {
    std::vector<SlurmNode> found;
    TRY(check(functions_.each_node(add_node, &found)));
    return found;
  }
  Result<SlurmNode> node(const std::string& name) override {
    std::vector<SlurmNode> found;
    const int status = functions_.find_node(name.c_str(), add_node, &found);
    TRY(check_found(status, found.empty(), "node", name));
    return std::move(found.front());
  }
  Result<std::vector<SlurmPartition>> partitions() override {
    std::vector<SlurmPartition> found;
    TRY(check(functions_.each_partition(add_partition, &found)));
    return found;
  }
  Result<void> update_nodes(const std::vector<std::string>& names,
                            std::optional<std::uint32_t> weight,
                            const std::optional<std::string>& extra) override {
    const std::string list = fmt::format("{}", fmt::join(names, ","));
    return check(functions_.update_nodes(list.c_str(), weight ? &*weight : nullptr,
                                         extra ? extra->c_str() : nullptr));
  }
  Result<void> drain_node(const std::string& name, const std::string& reason) override {
    return check(functions_.drain_node(name.c_str(), reason.c_str()));
  }
  Result<void> undrain_node(const std::string& name) override {
    return check(functions_.undrain_node(name.c_str()));
  }
  Result<void> set_admin_comment(JobId id, const std::string& text) override {
    return check(
        functions_.set_admin_comment(static_cast<std::uint32_t>(id.value()), text.c_str()));
  }

 private:
  [[nodiscard]] Result<void> check(int status) const {
    if (status == 0) return {};
    return fail(Error::Code::unavailable, "{}", functions_.error());
  }
  template <class Name>
  [[nodiscard]] Result<void> check_found(int status, bool none, const char* kind,
                                         const Name& name) const {
    if (status == 1 || (status == 0 && none)) {
      return fail(Error::Code::not_found, "Slurm does not know {} {}", kind, name);
    }
    return check(status);
  }

  Functions functions_;
};

// The library stays: libslurm has threads and state of its own.
Result<Functions> load(const fs::path& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return fail(Error::Code::unsupported, "{}", why == nullptr ? "it does not load" : why);
  }
  Functions functions;
  bool whole = true;
  const auto find = [&]<class F>(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(library, name));
    whole = whole && function != nullptr;
  };
#define FIND(name) find(functions.name, "aliquot_slurm_" #name);
  ALIQUOT_SLURM_FUNCTIONS(FIND)
#undef FIND
  if (!whole || functions.abi() != ALIQUOT_SLURM_ABI) {
    return fail(Error::Code::unsupported, "{} is of another version of Aliquot", path.string());
  }
  return functions;
}

// lib/slurm in the build tree; a package has one folder for each Slurm major below.
std::vector<fs::path> candidates() {
  const fs::path folder =
      node::find_part({"../lib/slurm", "../lib/aliquot/slurm", "../../lib/aliquot/slurm"},
                      "/usr/lib/aliquot/slurm");
  std::vector<fs::path> found = {folder / "aliquot_slurm.so"};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory(error)) found.push_back(entry.path() / "aliquot_slurm.so");
  }
  return found;
}

}  // namespace

Result<std::unique_ptr<SlurmClient>> open_client(const fs::path& plugin, const fs::path& conf) {
  const std::vector<fs::path> places = plugin.empty() ? candidates() : std::vector{plugin};
  std::string why;
  for (const fs::path& place : places) {
    std::error_code error;
    if (!fs::exists(place, error)) continue;
    const auto functions = load(place);
    if (!functions) {
      why = functions.error().message;
      continue;
    }
    functions->start(conf.empty() ? nullptr : conf.c_str());
    return std::make_unique<PluginClient>(*functions);
  }
  if (why.empty()) why = fmt::format("there is no {}", places.front().string());
  return fail(Error::Code::unsupported, "cannot talk to Slurm: {}", why);
}

}  // namespace aliquot::slurm
