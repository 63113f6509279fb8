// What a pod has been granted, as annotations of the pod: `aliquot.dev/grant` says which GPUs of
// which node each container has, `aliquot.dev/grant-seal` that we wrote it, for this very pod. Who
// may write a pod's annotations cannot forge it without the cluster's key.
//
// For pods that ask by gpushare's names its own annotations are written beside them.
#pragma once

#include <boost/json/fwd.hpp>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "kube/model/node_gpus.hpp"
#include "kube/model/pod_request.hpp"

namespace aliquot::kube {

struct PodGrant {
  std::string node;
  WallTime assumed;  // when it was decided
  ContainerGrants containers;
  friend bool operator==(const PodGrant&, const PodGrant&) = default;
};

std::string write_grant(const PodGrant& grant);
Result<PodGrant> read_grant(std::string_view text);

// The cluster's key. The first one seals; all are believed, so that a key can be changed.
class SealKey {
 public:
  // A key a line, the newest first; blank lines and those that begin with # do not count. A key has
  // at least 16 bytes.
  static Result<SealKey> parse(std::string_view text);
  static Result<SealKey> load(const std::filesystem::path& path);

  // Hexadecimal HMAC-SHA256 over the pod's names and the text.
  [[nodiscard]] std::string seal(const PodName& pod, std::string_view text) const;
  // Takes as long for a seal that is nearly right as for any other.
  [[nodiscard]] bool verify(const PodName& pod, std::string_view text, std::string_view seal) const;

 private:
  explicit SealKey(std::vector<std::string> keys) : keys_(std::move(keys)) {}
  std::vector<std::string> keys_;
};

// The grant that the pod's annotations say and seal. not_found: it has none; permission_denied: it
// has one that we did not write; invalid_argument: one that we cannot read.
Result<PodGrant> granted(const Pod& pod, const Names& names, const SealKey& key);

// Annotations by name; nothing: to be removed.
using AnnotationPatch = std::map<std::string, std::optional<std::string>>;
// Grant and seal, and gpushare's where the pod asks by its names. `node`: what the node says of its
// GPUs, for gpushare's numbers.
AnnotationPatch grant_annotations(const PodName& pod, const PodRequest& request,
                                  const PodGrant& grant, const NodeGpus& node, const Names& names,
                                  const SealKey& key);
// What takes all of them away again.
AnnotationPatch no_grant_annotations(const Names& names, bool gpushare);
// The body of a merge-patch that holds only while the pod is this one; `resource_version`, where
// there is one, only while nobody has changed it.
std::string annotation_patch(const AnnotationPatch& patch, const std::string& uid,
                             const std::string& resource_version);

}  // namespace aliquot::kube
