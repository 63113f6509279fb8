#include "engine/reservations.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "api/json.hpp"
#include "base/slurm_time.hpp"
#include "base/text.hpp"
#include "core/placement.hpp"
#include "engine/accounts.hpp"
#include "engine/admission.hpp"

namespace aliquot::engine {
namespace {

constexpr const char* kReservationsNote = "reservations";
constexpr std::size_t kMostReservations = 1'000;
constexpr std::size_t kMostPeople = 10'000;

bool overlap(const api::ReservationInfo& one, std::int64_t start, std::int64_t end) {
  return one.start_ms < end && start < one.end_ms;
}

bool among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

tl::unexpected<Refused> no_reservation(std::string message) {
  return refuse(Why::bad_change, std::move(message));
}

}  // namespace

Result<void> Reservations::read() {
  state_.reservations.clear();
  const auto note = TRY(state_.store.note(kReservationsNote));
  if (!note) return {};
  state_.reservations = TRY(api::from_json<api::ReservationList>(*note)).reservations;
  return {};
}

void Reservations::save() {
  state_.require(state_.store.save_note(kReservationsNote,
                                        api::to_json(api::ReservationList{state_.reservations})));
  state_.schedule_needed = true;
}

const api::ReservationInfo* Reservations::find(const std::string& name) const {
  const auto found = std::ranges::find(state_.reservations, name, &api::ReservationInfo::name);
  return found == state_.reservations.end() ? nullptr : &*found;
}

bool Reservations::open_to(const api::ReservationInfo& one, const std::string& user,
                           const std::string& account) const {
  return among(one.users, user) || (!account.empty() && among(one.accounts, account));
}

std::uint64_t Reservations::mask_of(const api::ReservationInfo& one) const {
  std::uint64_t mask = 0;
  for (std::size_t gpu = 0; gpu < state_.machine.gpus.size(); ++gpu) {
    const bool in = std::ranges::find(one.gpus, state_.machine.gpus[gpu].index) != one.gpus.end();
    if (in) mask |= std::uint64_t{1} << gpu;
  }
  return mask;
}

// Which GPUs: those that are named, or as many that are nobody else's then, the least used first.
Answer<void> Reservations::choose_gpus(api::ReservationInfo& one, const api::ReservationSpec& spec,
                                       const std::string& old_name) const {
  const auto taken = [&](std::int64_t index) {
    return std::ranges::any_of(state_.reservations, [&](const api::ReservationInfo& other) {
      return other.name != old_name && overlap(other, one.start_ms, one.end_ms) &&
             std::ranges::find(other.gpus, index) != other.gpus.end();
    });
  };
  // Jobs of others that may still run when it begins.
  const auto jobs_then = [&](std::int64_t index) {
    std::set<JobId> jobs;
    for (const core::GpuIndex gpu : state_.machine.devices_of(index)) {
      for (const JobId id : state_.ledger.jobs_on(0, gpu)) {
        const Job& job = state_.jobs.at(id);
        const auto left = state_.time_left(job);
        const bool over = left && (state_.clock.wall() + *left).ms() <= one.start_ms;
        if (!over && !open_to(one, job.owner.user, job.spec.account)) jobs.insert(id);
      }
    }
    return std::ssize(jobs);
  };
  if (spec.gpus) one.gpus = *spec.gpus;
  if (spec.gpu_count) {
    std::vector<std::pair<std::int64_t, std::int64_t>> free;
    std::set<std::int64_t> all;
    for (const gpu::Device& device : state_.machine.gpus) all.insert(device.index);
    for (const std::int64_t index : all) {
      const bool kept = std::ranges::find(one.gpus, index) != one.gpus.end();
      if (!taken(index)) free.emplace_back(kept ? -1 : jobs_then(index), index);
    }
    std::ranges::sort(free);
    if (*spec.gpu_count < 1 || *spec.gpu_count > std::ssize(free)) {
      return refuse(Why::busy, fmt::format("{} GPUs are not reserved at that time", free.size()));
    }
    one.gpus.clear();
    for (std::int64_t i = 0; i < *spec.gpu_count; ++i) {
      one.gpus.push_back(free[static_cast<std::size_t>(i)].second);
    }
  }
  std::ranges::sort(one.gpus);
  if (one.gpus.empty())
    return no_reservation("a reservation needs GPUs: TRES=gres/gpu=2, or Gpus=0,1");
  for (const std::int64_t index : one.gpus) {
    if (state_.machine.devices_of(index).empty()) {
      return no_reservation(fmt::format("there is no GPU {}", index));
    }
    if (taken(index)) return refuse(Why::busy, fmt::format("GPU {} is reserved then", index));
    const bool changed = spec.gpus || spec.gpu_count || spec.start_ms;
    if (changed && !spec.ignore_jobs && jobs_then(index) > 0) {
      return refuse(Why::busy, fmt::format("jobs may run on GPU {} then: Flags=IGNORE_JOBS keeps "
                                           "it all the same",
                                           index));
    }
  }
  return {};
}

Answer<void> Reservations::fill(api::ReservationInfo& one, const api::ReservationSpec& spec,
                                const std::string& old_name) const {
  const std::int64_t now = state_.clock.wall().ms();
  if (spec.start_ms) {
    const std::int64_t length = one.end_ms - one.start_ms;
    one.start_ms = *spec.start_ms;
    if (!spec.end_ms && !spec.duration_ms && length > 0) one.end_ms = one.start_ms + length;
  }
  if (spec.duration_ms) one.end_ms = one.start_ms + *spec.duration_ms;
  if (spec.end_ms) one.end_ms = *spec.end_ms;
  if (one.end_ms <= one.start_ms || one.end_ms <= now) {
    return refuse(Why::bad_time, "a reservation needs a Duration, or an EndTime after its start");
  }
  if (spec.users) one.users = *spec.users;
  if (spec.accounts) one.accounts = *spec.accounts;
  if (one.users.empty() && one.accounts.empty()) {
    return no_reservation("a reservation is for somebody: Users=… or Accounts=…");
  }
  if (one.users.size() + one.accounts.size() > kMostPeople) {
    return no_reservation("these are too many users and accounts");
  }
  for (const auto* names : {&one.users, &one.accounts}) {
    for (const std::string& name : *names) TRY(check_shown(name));
  }
  for (const std::string& account : one.accounts) {
    if (find_association(state_.book, account, "") == nullptr) {
      return refuse(Why::bad_account, fmt::format("there is no account {}", quote(account)));
    }
  }
  return choose_gpus(one, spec, old_name);
}

Answer<std::string> Reservations::create(const Caller& caller, const api::ReservationSpec& spec) {
  if (!state_.is_admin(caller)) return refuse(Why::access_denied, "only root may do this");
  TRY(check_shown(spec.name));
  if (spec.name.find_first_of(" ,=/") != std::string::npos) {
    return no_reservation("the name of a reservation is one word without ',', '=' and '/'");
  }
  if (state_.reservations.size() >= kMostReservations) {
    return no_reservation("there are too many reservations");
  }
  api::ReservationInfo one{.name = spec.name, .start_ms = state_.clock.wall().ms()};
  for (int i = 1; one.name.empty(); ++i) {
    const auto name = fmt::format("{}_{}", state_.users.name(caller.uid), i);
    if (find(name) == nullptr) one.name = name;
  }
  if (find(one.name) != nullptr) {
    return refuse(Why::bad_reservation_name,
                  fmt::format("there is a reservation {} already", quote(one.name)));
  }
  TRY(fill(one, spec, ""));
  state_.reservations.push_back(one);
  save();
  return one.name;
}

Answer<void> Reservations::update(const Caller& caller, const api::ReservationSpec& spec) {
  if (!state_.is_admin(caller)) return refuse(Why::access_denied, "only root may do this");
  const auto* found = find(spec.name);
  if (found == nullptr) {
    return refuse(Why::no_such_reservation,
                  fmt::format("there is no reservation {}", quote(spec.name)));
  }
  api::ReservationInfo changed = *found;
  TRY(fill(changed, spec, changed.name));
  *std::ranges::find(state_.reservations, changed.name, &api::ReservationInfo::name) = changed;
  save();
  return {};
}

Answer<void> Reservations::remove(const Caller& caller, const std::string& name) {
  if (!state_.is_admin(caller)) return refuse(Why::access_denied, "only root may do this");
  if (find(name) == nullptr) {
    return refuse(Why::no_such_reservation, fmt::format("there is no reservation {}", quote(name)));
  }
  std::erase_if(state_.reservations, [&](const auto& one) { return one.name == name; });
  save();
  return {};
}

Answer<void> Reservations::check(const Caller& caller, const Job& job) const {
  const std::string& name = job.spec.reservation;
  const bool share =
      job.request.gpus && !std::holds_alternative<core::WholeGpu>(job.request.gpus->what);
  if (name.empty()) {
    if (!share || !state_.settings.shares_in_reservations) return {};
    return refuse(Why::bad_gpus,
                  "here parts of a GPU are for reservations: name one with --reservation, or ask "
                  "for a whole GPU with --gpus=1");
  }
  const auto* one = find(name);
  if (one == nullptr) {
    return refuse(Why::no_such_reservation, fmt::format("there is no reservation {}", quote(name)));
  }
  if (!open_to(*one, job.owner.user, job.spec.account) && !state_.is_admin(caller)) {
    return refuse(Why::not_in_reservation,
                  fmt::format("the reservation {} is not for {}", quote(name), job.owner.user));
  }
  core::Shape inside = job.shape;
  inside.devices = mask_of(*one);
  if (!core::ever_fits(state_.ledger.cluster(), inside)) {
    return refuse(Why::never_fits,
                  fmt::format("the GPUs of the reservation {} can never give {}", name, job.gres));
  }
  return {};
}

std::uint64_t Reservations::devices_for(const Job& job, std::optional<Millis> length) const {
  if (!job.spec.reservation.empty()) {
    const auto* own = find(job.spec.reservation);
    return own == nullptr ? 0 : mask_of(*own);
  }
  std::uint64_t devices = ~std::uint64_t{0};
  const std::int64_t now = state_.clock.wall().ms();
  for (const api::ReservationInfo& one : state_.reservations) {
    const bool over_by_then = length && now + length->value() <= one.start_ms;
    if (!over_by_then && one.end_ms > now) devices &= ~mask_of(one);
  }
  return devices;
}

std::optional<std::string> Reservations::not_yet(const Job& job) const {
  const std::string& name = job.spec.reservation;
  if (name.empty()) return std::nullopt;
  const auto* one = find(name);
  if (one == nullptr) {
    return fmt::format(
        "its reservation, {}, is over or gone: 'scontrol update jobid={} "
        "reservation=…' or scancel",
        name, job.id);
  }
  if (!open_to(*one, job.owner.user, job.spec.account) && !state_.is_admin({job.owner.uid})) {
    return fmt::format("its reservation, {}, is not for {} any more", name, job.owner.user);
  }
  const WallTime now = state_.clock.wall();
  if (one->start_ms > now.ms()) {
    return fmt::format("its reservation, {}, begins in {}", name,
                       format_duration(WallTime(one->start_ms) - now, TimeStyle::squeue));
  }
  if (job.spec.time_limit_ms && now.ms() + *job.spec.time_limit_ms > one->end_ms) {
    return fmt::format("its reservation, {}, ends in {}, before its time limit would", name,
                       format_duration(WallTime(one->end_ms) - now, TimeStyle::squeue));
  }
  return std::nullopt;
}

std::optional<Millis> Reservations::left(const Job& job) const {
  if (job.spec.reservation.empty()) return std::nullopt;
  const auto* one = find(job.spec.reservation);
  if (one == nullptr) return std::nullopt;
  return std::max(WallTime(one->end_ms) - state_.clock.wall(), Millis(0));
}

void Reservations::expire() {
  seen_ = state_.clock.wall();
  const std::int64_t now = seen_.ms();
  const auto over = [&](const api::ReservationInfo& one) { return one.end_ms <= now; };
  if (std::erase_if(state_.reservations, over) > 0) save();
}

std::optional<WallTime> Reservations::next_change() const {
  std::optional<WallTime> next;
  const WallTime told = std::min(seen_, state_.clock.wall());  // the clock may be set back
  for (const api::ReservationInfo& one : state_.reservations) {
    for (const WallTime at : {WallTime(one.start_ms), WallTime(one.end_ms)}) {
      if (at > told && (!next || at < *next)) next = at;
    }
  }
  return next;
}

}  // namespace aliquot::engine
