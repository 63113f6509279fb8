#include "slurm/view/reservations.hpp"

#include <algorithm>

#include "base/hostlist.hpp"
#include "base/text.hpp"
#include "slurm/view/snapshot.hpp"

namespace aliquot::slurm {
namespace {

// `KEY=VALUE` among blanks, the first one: what users write comes last.
std::string_view value_of(const std::vector<std::string_view>& words, std::string_view key) {
  for (const auto word : words) {
    if (word.starts_with(key) && word.substr(key.size()).starts_with('='))
      return word.substr(key.size() + 1);
  }
  return {};
}

// Whether it holds its nodes whole, as far as one can tell.
bool is_whole(const Reservation& reservation, const std::vector<SlurmNode>& nodes) {
  std::int64_t cpus = 0;
  for (const auto& node : nodes) {
    if (std::ranges::count(reservation.nodes, node.name) > 0) cpus += node.cpus;
  }
  return cpus > 0 && reservation.cpus >= cpus;
}

}  // namespace

std::vector<Reservation> read_reservations(std::string_view shown) {
  std::vector<Reservation> all;
  for (const auto line : split(shown, '\n')) {
    const auto words = split(line, ' ');
    const auto name = value_of(words, "ReservationName");
    if (name.empty()) continue;
    Reservation made{.name = std::string(name)};
    const auto nodes = value_of(words, "Nodes");
    if (nodes != "(null)") made.nodes = expand_hostlist(nodes).value_or(std::vector<std::string>());
    made.cpus = tres_count(value_of(words, "TRES"), "cpu");
    made.active = value_of(words, "State") == "ACTIVE";
    for (const auto flag : split(value_of(words, "Flags"), ',')) {
      made.lets_others_in = made.lets_others_in || flag.starts_with("MAGNETIC");
      made.lets_jobs_out = made.lets_jobs_out || flag.starts_with("FLEX");
    }
    all.push_back(std::move(made));
  }
  return all;
}

bool Confines::allow(const std::string& node) const {
  return (!only || std::ranges::count(*only, node) > 0) && !kept.contains(node);
}

Confines confines_of(const SlurmJob& job, const std::vector<Reservation>& reservations,
                     const std::vector<SlurmNode>& nodes) {
  Confines confines;
  if (!job.reservation.empty()) {
    // Of several the one that comes first; one that is not shown to us keeps it nowhere.
    std::vector<std::string> only;
    for (const auto name : split(job.reservation, ',')) {
      const auto found = std::ranges::find(reservations, name, &Reservation::name);
      if (found == reservations.end() || found->lets_jobs_out || found->nodes.empty()) return {};
      only.insert(only.end(), found->nodes.begin(), found->nodes.end());
    }
    confines.only = std::move(only);
    return confines;
  }
  for (const auto& reservation : reservations) {
    if (!reservation.active || reservation.lets_others_in || !is_whole(reservation, nodes))
      continue;
    for (const auto& node : reservation.nodes) confines.kept.emplace(node, reservation.name);
  }
  return confines;
}

}  // namespace aliquot::slurm
