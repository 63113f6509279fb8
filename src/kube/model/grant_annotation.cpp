#include "kube/model/grant_annotation.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <boost/json.hpp>

#include "base/text.hpp"
#include "kube/model/json_read.hpp"
#include "sys/file.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

constexpr std::size_t kShortestKey = 16;
constexpr Compute kMostCompute = 100 * kWholeGpu;

Result<core::GrantedGpu> read_part(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) return fail(Error::Code::invalid_argument, "a part is no object");
  core::GrantedGpu part;
  part.gpu = GpuId(std::string(find_text(*object, "gpu")));
  part.portion.memory = Bytes(find_number(*object, "memory").value_or(-1));
  part.portion.compute = Compute(find_number(*object, "compute").value_or(-1));
  part.whole = find_flag(*object, "whole");
  if (part.gpu.value().empty() || part.portion.memory < Bytes(0) ||
      part.portion.memory > kMostMemory || part.portion.compute < Compute(0) ||
      part.portion.compute > kMostCompute) {
    return fail(Error::Code::invalid_argument, "a part of GPU {} has no size",
                quote(part.gpu.value()));
  }
  return part;
}

std::string hmac(const std::string& key, const PodName& pod, std::string_view text) {
  const std::string sealed = fmt::format("{}/{}\n{}\n{}", pod.space, pod.name, pod.uid, text);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(sealed.data()),
                                   sealed.size(), digest.data(), &length);
  if (made == nullptr) std::abort();  // only without memory
  std::string hex;
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest.at(i));
  return hex;
}

}  // namespace

std::string write_grant(const PodGrant& grant) {
  json::object containers;
  for (const auto& [name, parts] : grant.containers) {
    json::array list;
    for (const core::GrantedGpu& part : parts) {
      list.push_back(json::object{{"gpu", part.gpu.value()},
                                  {"memory", part.portion.memory.value()},
                                  {"compute", part.portion.compute.value()},
                                  {"whole", part.whole}});
    }
    containers[name] = std::move(list);
  }
  return json::serialize(json::object{{"v", 1},
                                      {"node", grant.node},
                                      {"assumed", grant.assumed.ms()},
                                      {"containers", std::move(containers)}});
}

Result<PodGrant> read_grant(std::string_view text) {
  const json::value parsed = TRY(parse_json(text));
  const json::object* object = parsed.if_object();
  if (object == nullptr || find_number(*object, "v") != 1) {
    return fail(Error::Code::invalid_argument, "the grant is not of version 1");
  }
  PodGrant grant;
  grant.node = find_text(*object, "node");
  grant.assumed = WallTime(find_number(*object, "assumed").value_or(0));
  const json::object* containers = find_object(*object, "containers");
  if (grant.node.empty() || containers == nullptr) {
    return fail(Error::Code::invalid_argument, "the grant has no node or no containers");
  }
  for (const auto& entry : *containers) {
    const json::array* list = entry.value().if_array();
    if (list == nullptr)
      return fail(Error::Code::invalid_argument, "the grant has no list of GPUs");
    auto& parts = grant.containers[as_text(entry.key())];
    for (const json::value& part : *list) parts.push_back(TRY(read_part(part)));
  }
  return grant;
}

Result<SealKey> SealKey::parse(std::string_view text) {
  std::vector<std::string> keys;
  for (std::string_view line : split(text, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    if (line.size() < kShortestKey) {
      return fail(Error::Code::invalid_argument, "a key of {} bytes is too short: {} at least",
                  line.size(), kShortestKey);
    }
    keys.emplace_back(line);
  }
  if (keys.empty()) return fail(Error::Code::invalid_argument, "there is no key in it");
  return SealKey(std::move(keys));
}

Result<SealKey> SealKey::load(const std::filesystem::path& path) {
  const std::string text = TRY(sys::read_whole(path));
  auto key = parse(text);
  if (!key) {
    return fail(key.error().code, "cannot use the key in {}: {}", quote(path.string()),
                key.error().message);
  }
  return key;
}

std::string SealKey::seal(const PodName& pod, std::string_view text) const {
  return hmac(keys_.front(), pod, text);
}

bool SealKey::verify(const PodName& pod, std::string_view text, std::string_view seal) const {
  bool right = false;
  for (const std::string& key : keys_) {
    const std::string expected = hmac(key, pod, text);
    right |= seal.size() == expected.size() &&
             CRYPTO_memcmp(seal.data(), expected.data(), expected.size()) == 0;
  }
  return right;
}

Result<PodGrant> granted(const Pod& pod, const Names& names, const SealKey& key) {
  const std::string* text = pod.annotation(names.grant());
  if (text == nullptr) {
    return fail(Error::Code::not_found, "pod {}/{} has no grant", pod.id.space, pod.id.name);
  }
  const std::string* seal = pod.annotation(names.grant_seal());
  if (seal == nullptr || !key.verify(pod.id, *text, *seal)) {
    return fail(Error::Code::permission_denied, "pod {}/{} has a grant that is not sealed by us",
                pod.id.space, pod.id.name);
  }
  return read_grant(*text);
}

AnnotationPatch grant_annotations(const PodName& pod, const PodRequest& request,
                                  const PodGrant& grant, const NodeGpus& node, const Names& names,
                                  const SealKey& key) {
  AnnotationPatch patch;
  const std::string text = write_grant(grant);
  patch[names.grant_seal()] = key.seal(pod, text);
  patch[names.grant()] = text;
  if (!request.gpushare) return patch;
  // gpushare knows pods with one GPU: where there are several, it is told of the first.
  std::int64_t units = 0;
  for (const ShareNeed& share : request.shares) units += *share.amounts.memory / node.unit;
  const NodeGpu* first = nullptr;
  for (const ContainerNeed& need : request.needs) {
    const auto found = grant.containers.find(need.container);
    if (found == grant.containers.end() || found->second.empty()) continue;
    const auto gpu = std::ranges::find(node.gpus, found->second.front().gpu, &NodeGpu::uuid);
    if (gpu == node.gpus.end()) continue;
    first = &*gpu;
    break;
  }
  if (first == nullptr) return patch;
  const std::int64_t all = units_of(*first, node.unit);
  patch[std::string(kGpushareIndex)] = std::to_string(first->index);
  patch[std::string(kGpusharePod)] =
      std::to_string(request.whole > 0 ? request.whole * all : units);
  patch[std::string(kGpushareDevice)] = std::to_string(all);
  patch[std::string(kGpushareAssumeTime)] = fmt::format("{}000000", grant.assumed.ms());
  patch[std::string(kGpushareAssigned)] = "false";
  return patch;
}

AnnotationPatch no_grant_annotations(const Names& names, bool gpushare) {
  AnnotationPatch patch{{names.grant(), std::nullopt}, {names.grant_seal(), std::nullopt}};
  if (!gpushare) return patch;
  for (const std::string_view name :
       {kGpushareIndex, kGpusharePod, kGpushareDevice, kGpushareAssumeTime, kGpushareAssigned}) {
    patch.emplace(name, std::nullopt);
  }
  return patch;
}

std::string annotation_patch(const AnnotationPatch& patch, const std::string& uid,
                             const std::string& resource_version) {
  json::object annotations;
  for (const auto& [name, text] : patch) {
    annotations[name] = text ? json::value(json::string(*text)) : json::value(nullptr);
  }
  json::object metadata{{"uid", uid}, {"annotations", std::move(annotations)}};
  if (!resource_version.empty()) metadata["resourceVersion"] = resource_version;
  return json::serialize(json::object{{"metadata", std::move(metadata)}});
}

}  // namespace aliquot::kube
