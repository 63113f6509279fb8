#include "kube/api/reflector.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json/array.hpp>
#include <chrono>
#include <random>
#include <unordered_map>
#include <utility>

#include "base/text.hpp"
#include "net/http.hpp"

namespace aliquot::kube {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

// Watches in a row that told nothing, after which a list is made: where we were may be what the
// server cannot bear.
constexpr int kFruitlessWatches = 5;
// A watch that told nothing for so long was a good one.
constexpr std::chrono::seconds kLongEnough{20};

struct KnownObject {
  std::string uid;
  std::string version;
  std::uint64_t listed = 0;  // the last list that had it
};

std::string object_key(const json::object& object) {
  return fmt::format("{}/{}", meta_text(object, "namespace"), meta_text(object, "name"));
}

json::object metadata_of(const std::string& key, const KnownObject& known) {
  const auto slash = key.find('/');
  json::object metadata;
  if (slash > 0) metadata["namespace"] = key.substr(0, slash);
  metadata["name"] = key.substr(slash + 1);
  metadata["uid"] = known.uid;
  metadata["resourceVersion"] = known.version;
  json::object object;
  object["metadata"] = std::move(metadata);
  return object;
}

}  // namespace

struct Reflector::State : std::enable_shared_from_this<State> {
  State(asio::io_context& context, Api& api_, ReflectorOptions options_, OnEvent on_event_,
        OnSynced on_synced_)
      : api(api_),
        options(std::move(options_)),
        on_event(std::move(on_event_)),
        on_synced(std::move(on_synced_)),
        timer(context) {}

  void list();
  void next_page(const std::string& more);
  void take_page(const Result<ApiResponse>& answer, bool continued);
  void listed();
  void open_watch();
  void take_line(std::string_view line);
  void watch_ended(const Result<ApiResponse>& answer);
  // The list is made again where what happened since cannot be had.
  void give_up_watch(bool expired, std::string why);
  void fail_and(void (State::*then)(), std::string why);

  [[nodiscard]] std::string target(const std::string& query) const;
  // What is known of an object changes, and whoever listens is told. False: over, nothing more.
  bool present(const json::object& object);
  bool absent(const std::string& key, const json::object* object);
  bool tell(EventType type, const json::object& object);

  Api& api;
  ReflectorOptions options;
  OnEvent on_event;
  OnSynced on_synced;
  asio::steady_timer timer;
  std::mt19937_64 random{std::random_device{}()};

  std::unordered_map<std::string, KnownObject> known;  // by namespace/name
  bool in_one = false;                                 // the next list has no pages
  std::uint64_t round = 0;                             // of lists
  std::string version;                                 // where the watch goes on
  std::unique_ptr<Watch> watch;
  std::chrono::steady_clock::time_point opened;
  bool fruitful = false;  // it told something
  int fruitless = 0;      // watches in a row
  int failures = 0;       // in a row
  bool synced = false;
  bool over = false;
  std::string trouble;
};

Reflector::Reflector(asio::io_context& context, Api& api, ReflectorOptions options,
                     OnEvent on_event, OnSynced on_synced)
    : state_(std::make_shared<State>(context, api, std::move(options), std::move(on_event),
                                     std::move(on_synced))) {}

// What is under way holds the state and finds that it is over.
Reflector::~Reflector() {
  state_->over = true;
  state_->timer.cancel();
  state_->watch.reset();
}

void Reflector::start() { state_->list(); }
bool Reflector::synced() const { return state_->synced; }
bool Reflector::watching() const { return state_->watch != nullptr; }
std::size_t Reflector::size() const { return state_->known.size(); }
const std::string& Reflector::trouble() const { return state_->trouble; }

std::string Reflector::State::target(const std::string& query) const {
  const char joint = options.target.find('?') == std::string::npos ? '?' : '&';
  return options.target + joint + query;
}

void Reflector::State::list() {
  ++round;
  next_page({});
}

void Reflector::State::next_page(const std::string& more) {
  std::string query = in_one ? std::string("limit=0") : fmt::format("limit={}", options.page);
  if (!more.empty()) query += "&continue=" + net::percent_encode(more);
  api.send({.target = target(query)},
           [self = shared_from_this(), continued = !more.empty()](Result<ApiResponse> answer) {
             if (!self->over) self->take_page(answer, continued);
           });
}

void Reflector::State::take_page(const Result<ApiResponse>& answer, bool continued) {
  // Took too long: the pages that are left have gone. What was told stays; the next list compares,
  // and comes in one piece, which cannot be too old.
  if (answer && answer->status == 410 && continued) {
    in_one = true;
    return fail_and(&State::list, "the list changed while it was read");
  }
  auto page = object_of(answer);
  if (!page) return fail_and(&State::list, page.error().message);
  const json::object* const metadata = find_object(*page, "metadata");
  const json::array* const items = find_array(*page, "items");
  const json::value* const none = page->if_contains("items");
  const bool empty = none == nullptr || none->is_null();  // as Go writes an empty list
  const std::string at(metadata == nullptr ? "" : find_text(*metadata, "resourceVersion"));
  if (at.empty() || (items == nullptr && !empty)) {
    return fail_and(&State::list, "the API server's list is none");
  }
  if (items != nullptr) {
    for (const json::value& item : *items) {
      const json::object* const object = item.if_object();
      if (object == nullptr || meta_text(*object, "name").empty()) {
        return fail_and(&State::list, "an object of the API server's list has no name");
      }
      if (!present(*object)) return;
    }
  }
  version = at;
  const std::string more(find_text(*metadata, "continue"));
  if (!more.empty()) return next_page(more);
  listed();
}

void Reflector::State::listed() {
  std::vector<std::string> gone;
  for (const auto& [key, object] : known) {
    if (object.listed != round) gone.push_back(key);
  }
  for (const auto& key : gone) {
    if (!absent(key, nullptr)) return;
  }
  failures = fruitless = 0;
  in_one = false;
  trouble.clear();
  if (!std::exchange(synced, true) && on_synced) {
    const auto self = shared_from_this();
    on_synced();
    if (over) return;
  }
  open_watch();
}

void Reflector::State::open_watch() {
  // Not all at once, where many have begun at once.
  const auto most = std::max<std::int64_t>(1, options.watch_for.value() / 1000);
  const auto seconds_open = most + static_cast<std::int64_t>(random() % 60) * most / 120;
  fruitful = false;
  opened = std::chrono::steady_clock::now();
  watch = api.watch(
      target(fmt::format("watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
                         net::percent_encode(version), seconds_open)),
      [weak = weak_from_this()](std::string_view line) {
        const auto self = weak.lock();
        if (self && !self->over) self->take_line(line);
      },
      [weak = weak_from_this()](Result<ApiResponse> answer) {
        const auto self = weak.lock();
        if (self && !self->over) self->watch_ended(answer);
      });
}

void Reflector::State::take_line(std::string_view line) {
  if (line.empty()) return;
  const auto event = parse_object(line);
  const json::object* const object = event ? find_object(*event, "object") : nullptr;
  const std::string_view type = event ? find_text(*event, "type") : std::string_view();
  if (type == "ERROR" && object != nullptr) {
    // Most often 410: it no longer knows where we were.
    const auto code = find_number(*object, "code").value_or(0);
    return give_up_watch(
        code == 410 || find_text(*object, "reason") == "Expired",
        fmt::format("the watch failed ({}): {}", code, make_plain(find_text(*object, "message"))));
  }
  const bool change = type == "ADDED" || type == "MODIFIED" || type == "DELETED";
  const std::string at(object == nullptr ? "" : meta_text(*object, "resourceVersion"));
  if (at.empty() || (!change && type != "BOOKMARK") ||
      (change && meta_text(*object, "name").empty())) {
    return give_up_watch(true, "an event of the watch could not be read");
  }
  trouble.clear();
  fruitful = true;
  version = at;
  if (!change) return;
  if (type == "DELETED") {
    absent(object_key(*object), object);
  } else {
    present(*object);
  }
}

void Reflector::State::watch_ended(const Result<ApiResponse>& answer) {
  if (!answer) return give_up_watch(false, answer.error().message);
  if (answer->status != 200) {
    return give_up_watch(answer->status == 410, object_of(answer).error().message);
  }
  // The usual end, where nothing is wrong. But one that ends at once and without a word is not
  // opened again and again without a pause.
  if (!fruitful && std::chrono::steady_clock::now() - opened < kLongEnough) {
    return give_up_watch(false, "the watch ended at once");
  }
  fruitless = failures = 0;
  open_watch();
}

void Reflector::State::give_up_watch(bool expired, std::string why) {
  watch.reset();
  if (fruitful) fruitless = failures = 0;
  if (!expired && ++fruitless < kFruitlessWatches) {
    return fail_and(&State::open_watch, std::move(why));
  }
  fruitless = 0;
  fail_and(&State::list, std::move(why));
}

void Reflector::State::fail_and(void (State::*then)(), std::string why) {
  trouble = std::move(why);
  if (failures == 2) spdlog::warn("{}: {}; trying again", options.target, trouble);
  const int doubled = std::min(failures++, 20);
  const std::int64_t pause =
      std::min(options.longest_pause.value(), options.first_pause.value() << doubled);
  // Up to a quarter more or less.
  const std::int64_t part = std::max<std::int64_t>(1, pause / 2);
  const std::int64_t spread =
      static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(part));
  timer.expires_after(
      std::chrono::milliseconds(std::max<std::int64_t>(0, pause - part / 2 + spread)));
  timer.async_wait([self = shared_from_this(), then](boost::system::error_code error) {
    if (!error && !self->over) ((*self).*then)();
  });
}

bool Reflector::State::present(const json::object& object) {
  const std::string key = object_key(object);
  const std::string_view uid = meta_text(object, "uid");
  const std::string_view at = meta_text(object, "resourceVersion");
  auto found = known.find(key);
  if (found != known.end() && found->second.uid != uid) {
    if (!absent(key, nullptr)) return false;
    found = known.end();
  }
  if (found == known.end()) {
    known.emplace(key, KnownObject{std::string(uid), std::string(at), round});
    return tell(EventType::added, object);
  }
  found->second.listed = round;
  if (found->second.version == at && !at.empty()) return true;
  found->second.version = at;
  return tell(EventType::modified, object);
}

bool Reflector::State::absent(const std::string& key, const json::object* object) {
  const auto found = known.find(key);
  if (found == known.end()) return true;
  const KnownObject last = std::move(found->second);
  known.erase(found);
  // Of another object of that name, which we never heard of.
  const bool same = object != nullptr && meta_text(*object, "uid") == last.uid;
  return tell(EventType::deleted, same ? *object : metadata_of(key, last));
}

bool Reflector::State::tell(EventType type, const json::object& object) {
  const auto self = shared_from_this();
  if (on_event) on_event(type, object);
  return !over;
}

}  // namespace aliquot::kube
