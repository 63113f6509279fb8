// GPUs that are kept for some people for some time: scontrol create reservation. Who is not among
// them gets none of these GPUs for a job that could still run by then; who names the reservation
// gets no others, and nothing before it begins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/state.hpp"

namespace aliquot::engine {

class Reservations {
 public:
  explicit Reservations(State& state) : state_(state) {}

  Result<void> read();  // from the record
  // The name, which may be ours to find.
  Answer<std::string> create(const Caller& caller, const api::ReservationSpec& spec);
  Answer<void> update(const Caller& caller, const api::ReservationSpec& spec);
  Answer<void> remove(const Caller& caller, const std::string& name);

  // Whether there is one of that name for this job.
  Answer<void> check(const Caller& caller, const Job& job) const;
  // Which GPUs the job may have if it starts now and runs for so long: Shape::devices.
  [[nodiscard]] std::uint64_t devices_for(const Job& job, std::optional<Millis> length) const;
  // What keeps the job from starting in its reservation, as a sentence; nothing where that may be.
  [[nodiscard]] std::optional<std::string> not_yet(const Job& job) const;
  // Until the end of its reservation, for a job that says no time.
  [[nodiscard]] std::optional<Millis> left(const Job& job) const;
  // Those that are over are gone; when the next one begins or ends.
  void expire();
  [[nodiscard]] std::optional<WallTime> next_change() const;

 private:
  [[nodiscard]] const api::ReservationInfo* find(const std::string& name) const;
  [[nodiscard]] bool open_to(const api::ReservationInfo& one, const std::string& user,
                             const std::string& account) const;
  [[nodiscard]] std::uint64_t mask_of(const api::ReservationInfo& one) const;
  Answer<void> fill(api::ReservationInfo& one, const api::ReservationSpec& spec,
                    const std::string& old_name) const;
  Answer<void> choose_gpus(api::ReservationInfo& one, const api::ReservationSpec& spec,
                           const std::string& old_name) const;
  void save();

  State& state_;
  WallTime seen_ = {};  // what began or ended by then, the queue has been told
};

}  // namespace aliquot::engine
