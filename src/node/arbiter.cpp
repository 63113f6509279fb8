#include "node/arbiter.hpp"

#include <chrono>
#include <utility>

#include "sys/clock.hpp"

namespace aliquot::node {

Arbiter::Arbiter(std::filesystem::path grants)
    : turns_(std::move(grants)), worker_("aq-arbiter", [this] {
        const auto pause = turns_.look(sys::mono_ns());
        return pause ? std::optional(std::chrono::nanoseconds(*pause)) : std::nullopt;
      }) {}

void Arbiter::add(const HolderId& job, std::uint64_t server) {
  worker_.post([this, job, server] { turns_.add(job, server); });
}

void Arbiter::remove(const HolderId& job) {
  worker_.post([this, job] { turns_.remove(job); });
}

void Arbiter::suspend(const HolderId& job, bool suspended) {
  worker_.post([this, job, suspended] { turns_.suspend(job, suspended); });
}

}  // namespace aliquot::node
