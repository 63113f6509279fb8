#include "kube/node/slice_publisher.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "base/text.hpp"
#include "net/http.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

constexpr Millis kAgain = seconds(2);

std::string slices_path(const std::string& name = {}) {
  return object_path("apis/resource.k8s.io/v1", {}, "resourceslices", name);
}

std::int64_t pool_generation(const json::object& slice) {
  const auto* spec = find_object(slice, "spec");
  const auto* pool = spec == nullptr ? nullptr : find_object(*spec, "pool");
  return pool == nullptr ? 0 : find_number(*pool, "generation").value_or(0);
}

// Whether what many claims can have parts of is still that: a cluster that does not know of it
// leaves it out.
bool shares_kept(const json::object& slice) {
  const auto* spec = find_object(slice, "spec");
  const auto* devices = spec == nullptr ? nullptr : find_array(*spec, "devices");
  return devices == nullptr || std::ranges::any_of(*devices, [](const json::value& value) {
           const auto* device = value.if_object();
           return device != nullptr && device->contains("allowMultipleAllocations");
         });
}

}  // namespace

SlicePublisher::SlicePublisher(boost::asio::io_context& context, Api& api, const Clock& clock,
                               std::string domain, std::string node)
    : api_(api),
      clock_(clock),
      domain_(std::move(domain)),
      node_(std::move(node)),
      slices_(
          context, api,
          {.target = slices_path() + "?fieldSelector=spec.driver%3D" +
                     net::percent_encode(domain_) + "%2Cspec.nodeName%3D" +
                     net::percent_encode(node_)},
          [this](EventType type, const json::object& object) { hear(type, object); },
          [this] {
            ++generation_;
            step();
          }) {}

void SlicePublisher::start() { slices_.start(); }

void SlicePublisher::hear(EventType type, const json::object& object) {
  const std::string name(meta_text(object, "name"));
  if (type == EventType::deleted) {
    present_.erase(name);
  } else {
    present_[name] = meta_text(object, "resourceVersion");
    // What was there before us must be older than what we write.
    if (written_.empty()) generation_ = std::max(generation_, pool_generation(object));
  }
  if (slices_.synced()) step();
}

std::string SlicePublisher::name_of(std::size_t at) const {
  return fmt::format("{}-{}-{}", node_, domain_, at);
}

void SlicePublisher::want(std::vector<json::object> specs, const std::string& node_uid) {
  if (node_uid != node_uid_) written_.clear();
  node_uid_ = node_uid;
  if (specs != wanted_) {
    std::size_t differ = 0;
    for (std::size_t i = 0; i < std::min(specs.size(), wanted_.size()); ++i) {
      if (specs[i] != wanted_[i]) ++differ;
    }
    if (specs.size() != wanted_.size() || differ > 1) ++generation_;
    wanted_ = std::move(specs);
  }
  step();
}

json::object SlicePublisher::body_of(std::size_t at) const {
  json::object spec = wanted_[at];
  spec["pool"] = {
      {"name", node_}, {"generation", generation_}, {"resourceSliceCount", wanted_.size()}};
  json::object metadata{{"name", name_of(at)},
                        {"labels", {{"app.kubernetes.io/managed-by", "aliquot-kube-node"}}}};
  if (!node_uid_.empty()) {
    metadata["ownerReferences"] =
        json::array{{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node_}, {"uid", node_uid_}}};
  }
  return {{"apiVersion", "resource.k8s.io/v1"},
          {"kind", "ResourceSlice"},
          {"metadata", std::move(metadata)},
          {"spec", std::move(spec)}};
}

void SlicePublisher::step() {
  if (!slices_.synced() || writing_ || wanted_.empty() || clock_.mono() < again_) return;
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    json::object body = body_of(i);
    const auto present = present_.find(name_of(i));
    const auto written = written_.find(name_of(i));
    if (present != present_.end() && written != written_.end() &&
        present->second == written->second.version &&
        written->second.text == json::serialize(body)) {
      continue;
    }
    complete_ = false;
    return write(i, std::move(body));
  }
  if (!std::exchange(complete_, true)) {
    spdlog::info("ResourceSlices of node {} say what claims can have: generation {}", node_,
                 generation_);
  }
}

void SlicePublisher::write(std::size_t at, json::object body) {
  const std::string name = name_of(at);
  const std::string text = json::serialize(body);
  const bool shared = wanted_[at].contains("devices") && shares_kept(body);
  ApiRequest request{.method = "POST", .target = slices_path(), .body = text};
  if (present_.contains(name)) {
    // A merge leaves what it does not name.
    auto& spec = body["spec"].as_object();
    for (const char* one : {"devices", "sharedCounters"}) {
      if (!spec.contains(one)) spec[one] = nullptr;
    }
    request = {.method = "PATCH",
               .target = slices_path(name),
               .body = json::serialize(body),
               .content_type = std::string(kMergePatch)};
  }
  writing_ = true;
  api_.send(std::move(request), [this, alive = std::weak_ptr<int>(token_), name, text,
                                 shared](const Result<ApiResponse>& response) {
    if (!alive.expired()) wrote(name, text, shared, object_of(response));
  });
}

void SlicePublisher::wrote(const std::string& name, const std::string& text, bool shared,
                           const Result<json::object>& answer) {
  writing_ = false;
  if (!answer) {
    // Gone or there by now: the watch says so.
    again_ = clock_.mono() + kAgain;
    trouble_ = fmt::format("ResourceSlice {}: {}", name, answer.error().message);
    return;
  }
  trouble_.clear();
  if (shared && !shares_kept(*answer)) {
    trouble_ =
        "this cluster has no consumable capacity (DRAConsumableCapacity, on by default in "
        "Kubernetes 1.36): claims get no parts of GPUs";
  }
  const std::string version(meta_text(*answer, "resourceVersion"));
  present_[name] = version;
  written_[name] = {text, version};
  step();
}

std::string SlicePublisher::trouble() const {
  if (const std::string& why = slices_.trouble(); !why.empty()) return "ResourceSlices: " + why;
  return trouble_;
}

}  // namespace aliquot::kube
