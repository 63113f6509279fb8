#include "kube/api/fake_api.hpp"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <deque>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "net/encoding.hpp"

namespace aliquot::kube {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

// Where something is: `/apis/coordination.k8s.io/v1` `ns` `leases` `name` `status`.
struct Place {
  std::string api;
  std::string name_space;
  std::string resource;
  std::string name;
  std::string subresource;

  [[nodiscard]] std::string path() const { return object_path(api, name_space, resource, name); }
};

std::optional<Place> parse_place(std::string_view path) {
  std::vector<std::string> parts;
  for (const auto part : split(path, '/')) {
    if (!part.empty()) parts.emplace_back(part);
  }
  std::size_t at = 0;
  const auto next = [&]() -> std::string { return at < parts.size() ? parts[at++] : ""; };
  Place place;
  const std::string kind = next();
  if (kind != "api" && kind != "apis") return std::nullopt;
  place.api = kind + "/" + next();
  if (kind == "apis") place.api += "/" + next();
  // A namespace by itself is an object like others.
  if (at < parts.size() && parts[at] == "namespaces" && parts.size() - at > 2) {
    next();
    place.name_space = next();
  }
  place.resource = next();
  place.name = next();
  place.subresource = next();
  if (place.resource.empty() || at != parts.size()) return std::nullopt;
  return place;
}

ApiResponse failure(int status, std::string_view reason, std::string_view message) {
  json::object body{
      {"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Failure"}, {"code", status}};
  body["reason"] = std::string(reason);
  body["message"] = std::string(message);
  return {status, json::serialize(body)};
}

ApiResponse expired() { return failure(410, "Expired", "too old resource version"); }

ApiResponse success(const json::object& object, int status = 200) {
  return {status, json::serialize(object)};
}

json::object& metadata_in(json::object& object) {
  json::value& there = object["metadata"];
  return there.is_object() ? there.get_object() : there.emplace_object();
}

// RFC 7386.
void merge(json::object& into, const json::object& patch) {
  for (const auto& [key, value] : patch) {
    if (value.is_null()) {
      into.erase(key);
    } else if (const auto* inner = value.if_object()) {
      json::value& there = into[key];
      merge(there.is_object() ? there.get_object() : there.emplace_object(), *inner);
    } else {
      into[key] = value;
    }
  }
}

// At a path with dots, as text.
std::string text_at(const json::object& object, std::string_view path) {
  const json::object* in = &object;
  const auto parts = split(path, '.');
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    in = find_object(*in, parts[i]);
    if (in == nullptr) return {};
  }
  return std::string(find_text(*in, parts.back()));
}

// `a=b`, `a==b`, `a!=b`, and for labels `a`.
bool selected(const json::object& object, const std::string& fields, const std::string& labels) {
  static const json::object none;
  const json::object* const metadata = find_object(object, "metadata");
  const json::object* const found =
      metadata == nullptr ? nullptr : find_object(*metadata, "labels");
  const json::object& has = found == nullptr ? none : *found;
  const auto fits = [&](std::string_view part, bool label) {
    if (part.empty()) return true;
    const bool unequal = part.find("!=") != std::string_view::npos;
    const auto mark = part.find_first_of("!=");
    if (mark == std::string_view::npos) return label && has.contains(std::string(part));
    const std::string_view key = part.substr(0, mark);
    const std::string_view wanted = part.substr(part.find_last_of('=') + 1);
    const std::string value = label ? std::string(find_text(has, key)) : text_at(object, key);
    return (value == wanted) != unequal;
  };
  for (const auto part : split(fields, ',')) {
    if (!fits(part, false)) return false;
  }
  for (const auto part : split(labels, ',')) {
    if (!fits(part, true)) return false;
  }
  return true;
}

std::string value_or_empty(const std::map<std::string, std::string>& query,
                           const std::string& key) {
  const auto found = query.find(key);
  return found == query.end() ? std::string() : found->second;
}

struct Happened {
  std::int64_t version = 0;
  Place place;
  std::optional<json::object> before;
  std::optional<json::object> after;
};

}  // namespace

struct FakeApi::State : std::enable_shared_from_this<State> {
  struct OpenWatch {
    Place place;
    std::string fields;
    std::string labels;
    bool bookmarks = false;
    std::int64_t told = 0;  // up to this version
    OnLine on_line;
    OnEnd on_end;
    std::deque<std::string> lines;  // on their way
    std::optional<Result<ApiResponse>> end;
    bool posted = false;
    bool gone = false;
    bool held = false;  // slow or late
  };

  explicit State(asio::io_context& context_) : context(context_) {}

  std::optional<FaultPlan> take_plan(std::string_view method, std::string_view path);
  ApiResponse carry_out(const ApiRequest& request);
  ApiResponse list(const Place& place, const std::map<std::string, std::string>& query);
  ApiResponse create(const Place& place, json::object object);
  ApiResponse bind(const Place& place, const json::object& binding);
  ApiResponse change(const Place& place, const json::object& sent, bool patch);
  ApiResponse erase(const Place& place, const json::object& sent);

  // What changes: told to every watch.
  const json::object& store(const Place& place, json::object object);
  void drop(const Place& place);
  void record(Happened happened);
  void tell(OpenWatch& open, const Happened& happened);
  void begin(const std::shared_ptr<OpenWatch>& open, const std::string& since);
  void push(const std::shared_ptr<OpenWatch>& open);
  static bool in_collection(const Place& collection, const Place& place);
  // The object's own, of a Place of a subresource too.
  [[nodiscard]] const json::object* find(const Place& place) const;

  asio::io_context& context;
  std::map<std::string, std::pair<Place, json::object>> objects;  // by path
  std::vector<Happened> history;
  std::int64_t version = 100;
  std::int64_t compacted = 0;  // what happened up to here is forgotten
  std::uint64_t last_uid = 0;
  // A list in pages goes on as it was when it began.
  struct Pages {
    std::int64_t version = 0;
    std::deque<json::object> rest;
  };
  std::map<std::string, Pages> pages;
  std::vector<FaultPlan> plans;
  std::vector<std::function<void()>> waiting;
  std::vector<std::shared_ptr<OpenWatch>> watches;
  std::vector<Seen> seen;
};

namespace {

class FakeWatch final : public Watch {
 public:
  explicit FakeWatch(std::function<void()> end) : end_(std::move(end)) {}
  ~FakeWatch() override { end_(); }

 private:
  std::function<void()> end_;
};

}  // namespace

FakeApi::FakeApi(asio::io_context& context) : state_(std::make_shared<State>(context)) {}

FakeApi::~FakeApi() {
  for (const auto& open : state_->watches) open->gone = true;
  state_->watches.clear();
  state_->waiting.clear();
}

std::optional<FakeApi::FaultPlan> FakeApi::State::take_plan(std::string_view method,
                                                            std::string_view path) {
  for (auto at = plans.begin(); at != plans.end(); ++at) {
    if (!at->method.empty() && at->method != method) continue;
    if (path.find(at->path) == std::string_view::npos) continue;
    FaultPlan plan = *at;
    if (--at->times == 0) plans.erase(at);
    return plan;
  }
  return std::nullopt;
}

void FakeApi::send(ApiRequest request, Done done) {
  state_->seen.push_back({request.method, request.target, request.body, request.content_type});
  const auto plan =
      state_->take_plan(request.method, request.target.substr(0, request.target.find('?')));
  const auto later = [self = state_](std::function<void()> what) {
    asio::post(self->context, std::move(what));
  };
  const auto broken = fail(Error::Code::unavailable, "the connection to the API server broke");
  auto carry = [weak = std::weak_ptr(state_), request, done]() {
    if (const auto self = weak.lock()) done(self->carry_out(request));
  };
  if (!plan) return later(std::move(carry));
  switch (plan->fault) {
    case Fault::status:
      return later([done, status = plan->status] {
        done(status == 410 ? expired() : failure(status, "Planned", "as the test wants it"));
      });
    case Fault::cut:
      return later([done, broken] { done(broken); });
    case Fault::lost_answer:
      return later([weak = std::weak_ptr(state_), request, done, broken] {
        if (const auto self = weak.lock()) self->carry_out(request);
        done(broken);
      });
    case Fault::garbage:
      return later([weak = std::weak_ptr(state_), request, done] {
        if (const auto self = weak.lock()) self->carry_out(request);
        done(ApiResponse{200, "{\"kind\": [\xff"});
      });
    case Fault::slow:
      return later([weak = std::weak_ptr(state_), request, done] {
        const auto self = weak.lock();
        if (!self) return;
        self->waiting.push_back([done, answer = self->carry_out(request)] { done(answer); });
      });
    case Fault::late:
      state_->waiting.push_back(std::move(carry));
      return;
  }
}

ApiResponse FakeApi::State::carry_out(const ApiRequest& request) {
  const auto target = net::parse_target(request.target);
  const auto place = target ? parse_place(target->path) : std::nullopt;
  if (!place) return failure(404, "NotFound", "there is nothing here");
  if (request.method == "GET") {
    if (place->name.empty()) return list(*place, target->query);
    if (const auto* found = find(*place)) return success(*found);
    return failure(404, "NotFound", fmt::format("{} not found", quote(place->name)));
  }
  json::object sent;
  if (!request.body.empty()) {
    auto parsed = parse_object(request.body);
    if (!parsed) return failure(400, "BadRequest", parsed.error().message);
    sent = std::move(*parsed);
  }
  if (request.method == "POST") {
    if (place->subresource == "binding") return bind(*place, sent);
    if (!place->name.empty()) return failure(405, "MethodNotAllowed", "not on an object");
    return create(*place, std::move(sent));
  }
  if (place->name.empty()) return failure(405, "MethodNotAllowed", "not on a collection");
  if (request.method == "PUT") return change(*place, sent, false);
  if (request.method == "PATCH") {
    if (request.content_type != kMergePatch) {
      return failure(415, "UnsupportedMediaType", "only merge patches");
    }
    return change(*place, sent, true);
  }
  if (request.method == "DELETE") return erase(*place, sent);
  return failure(405, "MethodNotAllowed", request.method);
}

const json::object* FakeApi::State::find(const Place& place) const {
  const auto found = objects.find(place.path());
  return found == objects.end() ? nullptr : &found->second.second;
}

bool FakeApi::State::in_collection(const Place& collection, const Place& place) {
  return collection.api == place.api && collection.resource == place.resource &&
         (collection.name_space.empty() || collection.name_space == place.name_space);
}

ApiResponse FakeApi::State::list(const Place& place,
                                 const std::map<std::string, std::string>& query) {
  Pages current;
  const std::string more = value_or_empty(query, "continue");
  if (more.empty()) {
    current.version = version;
    const std::string fields = value_or_empty(query, "fieldSelector");
    const std::string labels = value_or_empty(query, "labelSelector");
    for (const auto& [path, entry] : objects) {
      if (in_collection(place, entry.first) && selected(entry.second, fields, labels)) {
        current.rest.push_back(entry.second);
      }
    }
  } else {
    const auto kept = pages.extract(more);
    if (kept.empty() || kept.mapped().version < compacted) return expired();
    current = std::move(kept.mapped());
  }
  const auto most = parse_digits(value_or_empty(query, "limit")).value_or(0);
  json::array items;
  while (!current.rest.empty() && (most == 0 || items.size() < static_cast<std::size_t>(most))) {
    items.emplace_back(std::move(current.rest.front()));
    current.rest.pop_front();
  }
  json::object metadata{{"resourceVersion", std::to_string(current.version)}};
  if (!current.rest.empty()) {
    const std::string token = fmt::format("{}/{}+=", current.version, ++last_uid);
    metadata["continue"] = token;
    pages[token] = std::move(current);
  }
  json::object body{{"kind", "List"}, {"apiVersion", "v1"}};
  body["metadata"] = std::move(metadata);
  // As Go writes it.
  body["items"] = items.empty() ? json::value(nullptr) : json::value(std::move(items));
  return success(body);
}

ApiResponse FakeApi::State::create(const Place& place, json::object object) {
  Place whole = place;
  json::object& metadata = metadata_in(object);
  whole.name = std::string(find_text(metadata, "name"));
  if (whole.name.empty()) {
    const std::string_view prefix = find_text(metadata, "generateName");
    if (prefix.empty()) return failure(422, "Invalid", "metadata.name: Required value");
    whole.name = fmt::format("{}{:05x}", prefix, ++last_uid);
    metadata["name"] = whole.name;
  }
  if (const auto space = find_text(metadata, "namespace");
      !space.empty() && space != whole.name_space) {
    return failure(400, "BadRequest", "the namespace of the object is not that of the request");
  }
  if (!find_text(metadata, "resourceVersion").empty()) {
    return failure(400, "BadRequest", "resourceVersion should not be set on objects to be created");
  }
  if (find(whole) != nullptr) {
    return failure(409, "AlreadyExists", fmt::format("{} already exists", quote(whole.name)));
  }
  metadata.erase("uid");
  return success(store(whole, std::move(object)), 201);
}

ApiResponse FakeApi::State::bind(const Place& place, const json::object& binding) {
  const json::object* const pod = find(place);
  if (pod == nullptr)
    return failure(404, "NotFound", fmt::format("{} not found", quote(place.name)));
  const std::string_view uid = meta_text(binding, "uid");
  if (!uid.empty() && uid != meta_text(*pod, "uid")) {
    return failure(409, "Conflict", "the UID in the precondition is not that of the pod");
  }
  const json::object* const target = find_object(binding, "target");
  const std::string node(target == nullptr ? "" : find_text(*target, "name"));
  if (node.empty()) return failure(422, "Invalid", "target.name: Required value");
  if (!meta_text(*pod, "deletionTimestamp").empty()) {
    return failure(409, "Conflict", "the pod is being deleted, cannot be assigned to a host");
  }
  if (const auto now = text_at(*pod, "spec.nodeName"); !now.empty()) {
    return failure(409, "Conflict",
                   fmt::format("the pod is already assigned to node {}", quote(now)));
  }
  json::object changed = *pod;
  json::value& spec = changed["spec"];
  (spec.is_object() ? spec.get_object() : spec.emplace_object())["nodeName"] = node;
  // As the real one: annotations of a binding become the pod's.
  const json::object* const metadata = find_object(binding, "metadata");
  if (metadata != nullptr && metadata->contains("annotations")) {
    merge(metadata_in(changed), {{"annotations", metadata->at("annotations")}});
  }
  store(place, std::move(changed));
  json::object body{{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Success"}};
  return success(body, 201);
}

ApiResponse FakeApi::State::change(const Place& place, const json::object& sent, bool patch) {
  const json::object* const found = find(place);
  if (found == nullptr) {
    return failure(404, "NotFound", fmt::format("{} not found", quote(place.name)));
  }
  const std::string_view uid = meta_text(sent, "uid");
  if (!uid.empty() && uid != meta_text(*found, "uid")) {
    return failure(409, "Conflict", "the UID in the precondition is not that of the object");
  }
  const std::string_view at = meta_text(sent, "resourceVersion");
  if (!at.empty() && at != meta_text(*found, "resourceVersion")) {
    return failure(409, "Conflict",
                   "the object has been modified; please apply your changes to the latest version");
  }
  const std::string_view name = meta_text(sent, "name");
  if (!name.empty() && name != place.name) {
    return failure(400, "BadRequest", "the name of the object is not that of the request");
  }
  json::object changed = patch ? *found : sent;
  if (patch) merge(changed, sent);
  json::object& metadata = metadata_in(changed);
  metadata["uid"] = std::string(meta_text(*found, "uid"));
  metadata["name"] = place.name;
  metadata["resourceVersion"] = std::string(meta_text(*found, "resourceVersion"));
  // What changes nothing is no change.
  if (changed == *found) return success(*found);
  return success(store(place, std::move(changed)));
}

ApiResponse FakeApi::State::erase(const Place& place, const json::object& sent) {
  const json::object* const found = find(place);
  if (found == nullptr) {
    return failure(404, "NotFound", fmt::format("{} not found", quote(place.name)));
  }
  if (const json::object* const conditions = find_object(sent, "preconditions")) {
    for (const std::string_view key : {"uid", "resourceVersion"}) {
      const auto wanted = find_text(*conditions, key);
      if (!wanted.empty() && wanted != meta_text(*found, key)) {
        return failure(409, "Conflict", fmt::format("the {} in the precondition is another", key));
      }
    }
  }
  const json::object last = *found;
  drop(place);
  return success(last);
}

const json::object& FakeApi::State::store(const Place& place, json::object object) {
  Place whole = place;
  whole.subresource.clear();
  json::object& metadata = metadata_in(object);
  metadata["name"] = whole.name;
  if (!whole.name_space.empty()) metadata["namespace"] = whole.name_space;
  if (find_text(metadata, "uid").empty()) metadata["uid"] = fmt::format("uid-{}", ++last_uid);
  metadata["resourceVersion"] = std::to_string(++version);
  auto& entry = objects[whole.path()];
  Happened happened{version, whole, std::nullopt, object};
  if (!entry.first.resource.empty()) happened.before = entry.second;
  entry = {whole, std::move(object)};
  record(std::move(happened));
  return entry.second;
}

void FakeApi::State::drop(const Place& place) {
  auto gone = objects.extract(place.path());
  if (gone.empty()) return;
  Happened happened{++version, gone.mapped().first, std::move(gone.mapped().second), std::nullopt};
  record(std::move(happened));
}

void FakeApi::State::record(Happened happened) {
  history.push_back(std::move(happened));
  for (const auto& open : watches) {
    if (!open->held) tell(*open, history.back());
    push(open);
  }
}

void FakeApi::State::tell(OpenWatch& open, const Happened& happened) {
  if (happened.version <= open.told || open.end) return;
  open.told = happened.version;
  if (!in_collection(open.place, happened.place)) return;
  if (!open.place.name.empty() && open.place.name != happened.place.name) return;
  const bool was = happened.before && selected(*happened.before, open.fields, open.labels);
  const bool is = happened.after && selected(*happened.after, open.fields, open.labels);
  if (!was && !is) return;
  json::object event;
  event["type"] = is ? (was ? "MODIFIED" : "ADDED") : "DELETED";
  json::object object = is ? *happened.after : *happened.before;
  // An object that went has the version of its going.
  metadata_in(object)["resourceVersion"] = std::to_string(happened.version);
  event["object"] = std::move(object);
  open.lines.push_back(json::serialize(event));
}

// One line after the other, each from the loop.
void FakeApi::State::push(const std::shared_ptr<OpenWatch>& open) {
  if (open->posted || open->gone || open->held || (open->lines.empty() && !open->end)) return;
  open->posted = true;
  asio::post(context, [self = shared_from_this(), open] {
    open->posted = false;
    if (open->gone) return;
    if (!open->lines.empty()) {
      const std::string line = std::move(open->lines.front());
      open->lines.pop_front();
      open->on_line(line);
      return self->push(open);
    }
    if (!open->end) return;
    open->gone = true;
    std::erase(self->watches, open);
    open->on_end(*open->end);
  });
}

void FakeApi::State::begin(const std::shared_ptr<OpenWatch>& open, const std::string& since) {
  const auto from = since.empty() ? version : parse_digits(since).value_or(-1);
  if (from < compacted && from >= 0) {
    // The real one says so in the stream, or instead of it: both are tried.
    if (from % 2 == 0) {
      open->end = expired();
    } else {
      open->lines.push_back(fmt::format(R"({{"type":"ERROR","object":{}}})", expired().body));
      open->end = ApiResponse{200, ""};
    }
  } else if (from < 0) {
    open->end = failure(400, "BadRequest", "invalid resource version");
  } else {
    open->told = from;
    for (const auto& happened : history) tell(*open, happened);
  }
  push(open);
}

std::unique_ptr<Watch> FakeApi::watch(std::string target, OnLine on_line, OnEnd on_end) {
  state_->seen.push_back({"WATCH", target, "", ""});
  auto open = std::make_shared<State::OpenWatch>();
  open->on_line = std::move(on_line);
  open->on_end = std::move(on_end);
  state_->watches.push_back(open);
  const auto parsed = net::parse_target(target);
  const auto place = parsed ? parse_place(parsed->path) : std::nullopt;
  const auto plan = state_->take_plan("WATCH", target.substr(0, target.find('?')));
  const auto broken = fail(Error::Code::unavailable, "the connection to the API server broke");
  if (!place) {
    open->end = failure(404, "NotFound", "there is nothing here");
    state_->push(open);
  } else if (plan && plan->fault == Fault::status) {
    open->end = plan->status == 410 ? expired() : failure(plan->status, "Planned", "as planned");
    state_->push(open);
  } else if (plan && plan->fault == Fault::garbage) {
    open->lines.emplace_back("{\"type\": [\xff");
    state_->push(open);
  } else if (plan && (plan->fault == Fault::cut || plan->fault == Fault::lost_answer)) {
    open->end = broken;
    state_->push(open);
  } else {
    open->place = *place;
    open->fields = value_or_empty(parsed->query, "fieldSelector");
    open->labels = value_or_empty(parsed->query, "labelSelector");
    open->bookmarks = value_or_empty(parsed->query, "allowWatchBookmarks") == "true";
    const std::string since = value_or_empty(parsed->query, "resourceVersion");
    if (plan) {
      open->held = true;
      state_->waiting.push_back([weak = std::weak_ptr(state_), open, since] {
        const auto self = weak.lock();
        if (!self || open->gone) return;
        open->held = false;
        if (!open->end) self->begin(open, since);
        self->push(open);
      });
    } else {
      state_->begin(open, since);
    }
  }
  return std::make_unique<FakeWatch>([weak = std::weak_ptr(state_), open] {
    open->gone = true;
    if (const auto self = weak.lock()) std::erase(self->watches, open);
  });
}

json::object FakeApi::put(std::string_view path, json::object object) {
  const auto place = parse_place(path);
  if (!place || place->name.empty()) std::abort();
  const json::object* const there = state_->find(*place);
  if (there != nullptr && meta_text(object, "uid").empty()) {
    metadata_in(object)["uid"] = std::string(meta_text(*there, "uid"));
  }
  return state_->store(*place, std::move(object));
}

bool FakeApi::patch(std::string_view path, const json::object& patch) {
  const auto place = parse_place(path);
  return place && state_->change(*place, patch, true).status == 200;
}

bool FakeApi::remove(std::string_view path) {
  const auto place = parse_place(path);
  if (!place || state_->find(*place) == nullptr) return false;
  state_->drop(*place);
  return true;
}

const json::object* FakeApi::find(std::string_view path) const {
  const auto place = parse_place(path);
  return place ? state_->find(*place) : nullptr;
}

std::map<std::string, json::object> FakeApi::list(std::string_view collection) const {
  std::map<std::string, json::object> found;
  const auto place = parse_place(collection);
  if (!place) return found;
  for (const auto& [path, entry] : state_->objects) {
    if (State::in_collection(*place, entry.first)) found.emplace(path, entry.second);
  }
  return found;
}

void FakeApi::plan(FaultPlan fault) { state_->plans.push_back(std::move(fault)); }
void FakeApi::clear_plans() { state_->plans.clear(); }

void FakeApi::release() {
  for (auto& what : std::exchange(state_->waiting, {})) {
    asio::post(state_->context, std::move(what));
  }
}

void FakeApi::cut_watches() {
  const auto broken = fail(Error::Code::unavailable, "the connection to the API server broke");
  const auto all = state_->watches;
  for (const auto& open : all) {
    // Also what was on its way does not arrive.
    open->lines.clear();
    if (!open->end) open->end = broken;
    state_->push(open);
  }
}

void FakeApi::end_watches() {
  const auto all = state_->watches;
  for (const auto& open : all) {
    if (!open->end) open->end = ApiResponse{200, ""};
    state_->push(open);
  }
}

void FakeApi::compact() {
  state_->compacted = state_->version;
  state_->history.clear();
}

void FakeApi::bookmark() {
  for (const auto& open : state_->watches) {
    if (!open->bookmarks || open->end || open->held) continue;
    open->lines.push_back(
        fmt::format(R"({{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{}"}}}}}})",
                    state_->version));
    state_->push(open);
  }
}

void FakeApi::say(std::string_view line) {
  for (const auto& open : state_->watches) {
    if (open->end || open->held) continue;
    open->lines.emplace_back(line);
    state_->push(open);
  }
}

const std::vector<FakeApi::Seen>& FakeApi::seen() const { return state_->seen; }
void FakeApi::forget_seen() { state_->seen.clear(); }
std::size_t FakeApi::watches() const { return state_->watches.size(); }
std::size_t FakeApi::waiting() const { return state_->waiting.size(); }
std::int64_t FakeApi::resource_version() const { return state_->version; }

}  // namespace aliquot::kube
