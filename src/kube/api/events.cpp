#include "kube/api/events.hpp"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <tuple>
#include <utility>

#include "kube/api/moments.hpp"

namespace aliquot::kube {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

// What the API server takes: a message of 1024 bytes, a reason of 128.
constexpr std::size_t kMessageLimit = 1'024;
constexpr std::size_t kReasonLimit = 128;

// Not in the middle of a character.
std::string shortened(std::string text, std::size_t limit) {
  if (text.size() <= limit) return text;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
  std::size_t end = limit;
  while (end > 0 && continues(text[end])) --end;
  text.resize(end);
  return text;
}

}  // namespace

struct Events::State : std::enable_shared_from_this<State> {
  using Same = std::tuple<ObjectRef, Severity, std::string, std::string>;

  // An event that was told, perhaps often.
  struct Told {
    Same same = {};
    std::string path = {};  // where it is; empty: not yet made
    std::string name = {};
    WallTime first = {};
    WallTime last = {};
    std::int64_t count = 0;
    std::int64_t sent = 0;  // of the count
    MonoTime sent_at = {};
    bool under_way = false;
  };
  using Remembered = std::list<Told>;  // the latest first

  State(asio::io_context& context, Api& api_, const Clock& clock_, EventsOptions options_)
      : api(api_), clock(clock_), options(std::move(options_)), timer(context) {}

  void tell(Same same);
  void flush();
  void deliver(Told& told);
  void delivered(const Same& same, const Result<ApiResponse>& answer, std::int64_t count,
                 bool is_new);
  void forget_oldest();
  void flush_later();
  [[nodiscard]] json::object body_of(const Told& told) const;
  [[nodiscard]] std::string space_of(const Told& told) const {
    const std::string& space = std::get<ObjectRef>(told.same).name_space;
    return space.empty() ? "default" : space;
  }

  Api& api;
  const Clock& clock;
  EventsOptions options;
  asio::steady_timer timer;
  bool timer_runs = false;
  Remembered remembered;
  std::map<Same, Remembered::iterator> found;
  std::size_t in_flight = 0;
  std::uint64_t dropped = 0;
  std::uint64_t number = 0;  // of names
  bool over = false;
};

Events::Events(asio::io_context& context, Api& api, const Clock& clock, EventsOptions options)
    : state_(std::make_shared<State>(context, api, clock, std::move(options))) {}

Events::~Events() {
  state_->over = true;
  state_->timer.cancel();
}

void Events::tell(const ObjectRef& about, Severity severity, std::string reason,
                  std::string message) {
  state_->tell({about, severity, shortened(std::move(reason), kReasonLimit),
                shortened(std::move(message), kMessageLimit)});
}

void Events::flush() { state_->flush(); }
std::uint64_t Events::dropped() const { return state_->dropped; }

void Events::State::tell(Same same) {
  const WallTime now = clock.wall();
  auto at = found.find(same);
  if (at == found.end()) {
    forget_oldest();
    remembered.push_front({.same = same, .first = now});
    at = found.emplace(std::move(same), remembered.begin()).first;
  } else {
    remembered.splice(remembered.begin(), remembered, at->second);
  }
  Told& told = *at->second;
  ++told.count;
  told.last = now;
  const bool is_new = told.path.empty();
  const bool due = is_new || clock.mono() - told.sent_at >= options.quiet;
  if (due && !told.under_way && in_flight < options.in_flight) return deliver(told);
  flush_later();
}

void Events::State::forget_oldest() {
  while (!remembered.empty() && remembered.size() >= std::max<std::size_t>(1, options.remembered)) {
    const Told& oldest = remembered.back();
    if (oldest.sent < oldest.count && !oldest.under_way) ++dropped;
    found.erase(oldest.same);
    remembered.pop_back();
  }
}

void Events::State::flush_later() {
  if (std::exchange(timer_runs, true)) return;
  timer.expires_after(std::chrono::milliseconds(std::max<std::int64_t>(1, options.quiet.value())));
  timer.async_wait([self = shared_from_this()](boost::system::error_code error) {
    self->timer_runs = false;
    if (!error && !self->over) self->flush();
  });
}

void Events::State::flush() {
  bool more = false;
  for (Told& told : remembered) {
    if (told.sent >= told.count || told.under_way) continue;
    const bool due = told.path.empty() || clock.mono() - told.sent_at >= options.quiet;
    if (due && in_flight < options.in_flight) {
      deliver(told);
    } else {
      more = true;
    }
  }
  if (more) flush_later();
}

json::object Events::State::body_of(const Told& told) const {
  const auto& [about, severity, reason, message] = told.same;
  json::object involved{{"kind", about.kind},
                        {"name", about.name},
                        {"uid", about.uid},
                        {"apiVersion", about.api_version}};
  if (!about.name_space.empty()) involved["namespace"] = about.name_space;
  json::object source{{"component", options.component}};
  if (!options.host.empty()) source["host"] = options.host;
  json::object body;
  body["apiVersion"] = "v1";
  body["kind"] = "Event";
  body["metadata"] = json::object{{"name", told.name}, {"namespace", space_of(told)}};
  body["involvedObject"] = std::move(involved);
  body["reason"] = reason;
  body["message"] = message;
  body["type"] = severity == Severity::normal ? "Normal" : "Warning";
  body["source"] = std::move(source);
  body["reportingComponent"] = options.component;
  body["reportingInstance"] = options.host;
  body["firstTimestamp"] = format_second(told.first);
  body["lastTimestamp"] = format_second(told.last);
  body["count"] = told.count;
  return body;
}

void Events::State::deliver(Told& told) {
  told.under_way = true;
  told.sent_at = clock.mono();
  ++in_flight;
  const bool is_new = told.path.empty();
  ApiRequest request;
  if (is_new) {
    // Nobody else's: of this moment, and numbered.
    const auto& about = std::get<ObjectRef>(told.same);
    told.name =
        fmt::format("{}.{:x}{:04x}", about.name.substr(0, 220),
                    static_cast<std::uint64_t>(std::max<std::int64_t>(0, clock.wall().ms())),
                    ++number & 0xFFFFU);
    request = {.method = "POST",
               .target = object_path("api/v1", space_of(told), "events"),
               .body = json::serialize(body_of(told))};
  } else {
    request = {.method = "PATCH",
               .target = told.path,
               .body = json::serialize(json::object{{"count", told.count},
                                                    {"lastTimestamp", format_second(told.last)}}),
               .content_type = std::string(kMergePatch)};
  }
  api.send(std::move(request), [self = shared_from_this(), same = told.same, count = told.count,
                                is_new](const Result<ApiResponse>& answer) {
    if (!self->over) self->delivered(same, answer, count, is_new);
  });
}

void Events::State::delivered(const Same& same, const Result<ApiResponse>& answer,
                              std::int64_t count, bool is_new) {
  --in_flight;
  const auto at = found.find(same);
  if (at == found.end()) return;  // forgotten meanwhile
  Told& told = *at->second;
  told.under_way = false;
  const bool taken = answer && answer->status >= 200 && answer->status < 300;
  if (taken) {
    told.sent = count;
    if (is_new) told.path = object_path("api/v1", space_of(told), "events", told.name);
  } else if (!is_new && answer && answer->status == 404) {
    // The API server forgets events after a while: the next is a new one.
    told.path.clear();
    told.first = told.last;
    told.count = told.count - told.sent;
    told.sent = 0;
  } else {
    ++dropped;
    told.sent = count;  // counted with the next
  }
  if (told.sent < told.count) flush_later();
}

}  // namespace aliquot::kube
