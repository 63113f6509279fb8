// Which partitions a job may enter, and what they are for it.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "engine/accounts.hpp"
#include "engine/admission.hpp"

namespace aliquot::engine {

std::vector<const Partition*> Admission::find_partitions(std::string_view names) const {
  const auto& all = state_.settings.partitions;
  std::vector<const Partition*> found;
  const auto add = [&](auto is_meant) {
    const auto one = std::ranges::find_if(all, is_meant);
    if (one != all.end() && std::ranges::find(found, &*one) == found.end()) found.push_back(&*one);
  };
  if (names.empty()) {
    add([](const Partition& one) { return one.is_default; });
    return found;
  }
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find(',', at), names.size());
    add([name = names.substr(at, end - at)](const Partition& one) { return one.name == name; });
    at = end + 1;
  }
  return found;
}

std::uint64_t Admission::devices_of(const Partition& partition) const {
  if (partition.gpus.empty()) return ~std::uint64_t{0};
  std::uint64_t devices = 0;
  for (std::size_t gpu = 0; gpu < state_.machine.gpus.size(); ++gpu) {
    if (std::ranges::binary_search(partition.gpus, state_.machine.gpus[gpu].index)) {
      devices |= std::uint64_t{1} << gpu;
    }
  }
  return devices;
}

std::optional<Millis> Admission::time_limit_in(const Partition& partition, const Job& job) const {
  const bool chosen = job.partition.find(',') == std::string::npos;
  if (chosen || job.spec.time_limit_ms || job.spec.no_time_limit) return job.time_limit;
  std::optional<Millis> limit = partition.default_time.length;
  if (const auto most = max_wall(state_.book, job, partition.qos)) {
    limit = std::min(limit.value_or(*most), *most);
  }
  return limit;
}

Answer<std::string> Admission::check_partitions(const Caller& caller, const Owner& owner,
                                                std::string_view names) const {
  const auto user = state_.users.find(owner.uid);
  std::string checked;
  for (const std::string_view name : aliquot::split(names, ',')) {
    const auto found = find_partitions(name);
    if (found.empty() || (name.empty() && !names.empty())) {
      return refuse(Why::no_such_partition, "there is no partition " + quote(name));
    }
    const Partition& partition = *found.front();
    const auto may = [&](const std::string& group) {
      return std::ranges::find(partition.groups, group) != partition.groups.end();
    };
    const bool open = (partition.users.empty() && partition.groups.empty()) ||
                      std::ranges::find(partition.users, owner.user) != partition.users.end() ||
                      may(owner.group) || (user && std::ranges::any_of(user->groups, may));
    if (!open && !state_.is_admin(caller)) {
      return refuse(Why::not_in_partition,
                    fmt::format("the partition {} is not open to {}", partition.name, owner.user));
    }
    checked += (checked.empty() ? "" : ",") + partition.name;
  }
  return checked;
}

}  // namespace aliquot::engine
