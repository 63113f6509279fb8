#include "kube/api/lease.hpp"

#include <spdlog/spdlog.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "kube/api/moments.hpp"

namespace aliquot::kube {

namespace asio = boost::asio;
namespace json = boost::json;

struct Lease::State : std::enable_shared_from_this<State> {
  State(asio::io_context& context, Api& api_, const Clock& clock_, LeaseOptions options_,
        std::function<void()> on_lead_, std::function<void()> on_lost_)
      : api(api_),
        clock(clock_),
        options(std::move(options_)),
        on_lead(std::move(on_lead_)),
        on_lost(std::move(on_lost_)),
        timer(context) {}

  void tick();
  void step();
  void look(const Result<ApiResponse>& answer);
  void write(json::object lease, bool is_new);
  void written(const Result<ApiResponse>& answer, MonoTime sent);
  void seen(const json::object& lease);
  // Whether we lead has perhaps changed.
  void settle();
  void release(std::function<void()> done);
  void give_back();
  [[nodiscard]] bool in_time() const {
    return renewed && clock.mono() - *renewed < options.renew_limit;
  }
  [[nodiscard]] std::string path() const {
    return object_path("apis/coordination.k8s.io/v1", options.name_space, "leases", options.name);
  }
  [[nodiscard]] std::string collection() const {
    return object_path("apis/coordination.k8s.io/v1", options.name_space, "leases");
  }

  Api& api;
  const Clock& clock;
  LeaseOptions options;
  std::function<void()> on_lead;
  std::function<void()> on_lost;
  asio::steady_timer timer;

  std::string holder;               // as last seen
  std::string last_seen;            // version and holder's word, to see a change
  std::optional<MonoTime> changed;  // when that changed, by our clock
  Millis holders_duration = {};
  json::object last;                // the lease as it was, to write the next from
  std::optional<MonoTime> renewed;  // when we sent the last renewal that was taken
  bool told = false;                // that we lead
  std::function<void()> released;
  bool asking = false;
  bool standing_down = false;
  bool over = false;
};

Lease::Lease(asio::io_context& context, Api& api, const Clock& clock, LeaseOptions options,
             std::function<void()> on_lead, std::function<void()> on_lost)
    : state_(std::make_shared<State>(context, api, clock, std::move(options), std::move(on_lead),
                                     std::move(on_lost))) {}

Lease::~Lease() {
  state_->over = true;
  state_->timer.cancel();
}

void Lease::start() { state_->tick(); }
void Lease::step() { state_->step(); }
void Lease::release(std::function<void()> done) { state_->release(std::move(done)); }
bool Lease::leading() const { return !state_->standing_down && state_->in_time(); }
const std::string& Lease::holder() const { return state_->holder; }

void Lease::State::tick() {
  step();
  if (over || standing_down) return;
  timer.expires_after(std::chrono::milliseconds(options.retry.value()));
  timer.async_wait([self = shared_from_this()](boost::system::error_code error) {
    if (!error && !self->over) self->tick();
  });
}

void Lease::State::step() {
  settle();
  if (over || standing_down || asking) return;
  asking = true;
  // A renewal is written from what we know; a conflict says that it is another's by now.
  if (told && !last.empty()) return write(last, false);
  api.send({.target = path()}, [self = shared_from_this()](Result<ApiResponse> answer) {
    if (!self->over) self->look(answer);
  });
}

void Lease::State::look(const Result<ApiResponse>& answer) {
  if (standing_down) {
    asking = false;
    return give_back();
  }
  if (answer && answer->status == 404) return write({}, true);
  auto lease = object_of(answer);
  if (!lease) {
    asking = false;
    spdlog::debug("lease {}: {}", options.name, lease.error().message);
    return settle();
  }
  seen(*lease);
  const bool free = holder.empty() || holder == options.identity ||
                    (changed && clock.mono() - *changed >= holders_duration);
  if (free) return write(std::move(*lease), false);
  asking = false;
  settle();
}

void Lease::State::seen(const json::object& lease) {
  static const json::object none;
  const json::object* const found = find_object(lease, "spec");
  const json::object& spec = found == nullptr ? none : *found;
  holder = std::string(find_text(spec, "holderIdentity"));
  // Not by its times: clocks are set, and two renewals may say the same.
  const json::object* const about = find_object(lease, "metadata");
  const std::string now =
      fmt::format("{} {}", find_text(about == nullptr ? none : *about, "resourceVersion"), holder);
  const auto said = find_number(spec, "leaseDurationSeconds").value_or(0);
  // Whatever it says: neither at once nor never.
  holders_duration = said < 1 || said > 3'600 ? options.duration : seconds(said);
  if (now != last_seen || !changed) {
    last_seen = now;
    changed = clock.mono();
  }
}

void Lease::State::write(json::object lease, bool is_new) {
  const std::string now = format_moment(clock.wall());
  json::object* spec = nullptr;
  if (is_new) {
    lease["apiVersion"] = "coordination.k8s.io/v1";
    lease["kind"] = "Lease";
    lease["metadata"] = json::object{{"name", options.name}, {"namespace", options.name_space}};
  }
  if (json::value* const there = lease.if_contains("spec")) spec = there->if_object();
  if (spec == nullptr) spec = &lease["spec"].emplace_object();
  const bool ours = find_text(*spec, "holderIdentity") == options.identity;
  if (!ours) {
    const auto before = find_number(*spec, "leaseTransitions").value_or(0);
    (*spec)["leaseTransitions"] = is_new || before < 0 || before > 1'000'000'000 ? 0 : before + 1;
    (*spec)["acquireTime"] = now;
  }
  (*spec)["holderIdentity"] = options.identity;
  (*spec)["leaseDurationSeconds"] = options.duration.value() / 1000;
  (*spec)["renewTime"] = now;
  // The object's resourceVersion is in it: whoever changed it meanwhile wins.
  ApiRequest request{.method = is_new ? "POST" : "PUT",
                     .target = is_new ? collection() : path(),
                     .body = json::serialize(lease)};
  api.send(std::move(request),
           [self = shared_from_this(), sent = clock.mono()](Result<ApiResponse> answer) {
             if (!self->over) self->written(answer, sent);
           });
}

void Lease::State::written(const Result<ApiResponse>& answer, MonoTime sent) {
  asking = false;
  auto lease = object_of(answer);
  if (standing_down) {
    if (lease) last = std::move(*lease);
    return give_back();
  }
  if (lease) {
    seen(*lease);
    last = std::move(*lease);
    if (holder == options.identity) renewed = sent;
  } else {
    // Read anew next time: what we know of it may be old, or the answer was lost.
    last.clear();
    if (lease.error().code == Error::Code::failed_state && told) {
      spdlog::warn("lease {}: changed by another", options.name);
    }
  }
  settle();
}

void Lease::State::settle() {
  const auto self = shared_from_this();
  const bool leads = !standing_down && in_time();
  if (leads == told) return;
  told = leads;
  if (!leads) renewed.reset();
  const auto& hook = leads ? on_lead : on_lost;
  if (hook) hook();
}

void Lease::State::release(std::function<void()> done) {
  if (over || standing_down) {
    if (done) done();
    return;
  }
  standing_down = true;
  released = std::move(done);
  const bool led = told;
  timer.cancel();
  settle();
  if (over) return;
  if (!led) last.clear();
  // What is being written is written first: it would be in the way.
  if (!asking) give_back();
}

void Lease::State::give_back() {
  const auto self = shared_from_this();
  json::object lease = std::exchange(last, {});
  json::value* const there = lease.if_contains("spec");
  json::object* const spec = there == nullptr ? nullptr : there->if_object();
  if (spec == nullptr || find_text(*spec, "holderIdentity") != options.identity) {
    if (const auto done = std::exchange(released, nullptr)) done();
    return;
  }
  holder.clear();
  (*spec)["holderIdentity"] = "";
  (*spec)["leaseDurationSeconds"] = 1;
  (*spec)["renewTime"] = format_moment(clock.wall());
  api.send({.method = "PUT", .target = path(), .body = json::serialize(lease)},
           [self](const Result<ApiResponse>&) {
             if (self->over) return;
             if (const auto done = std::exchange(self->released, nullptr)) done();
           });
}

}  // namespace aliquot::kube
