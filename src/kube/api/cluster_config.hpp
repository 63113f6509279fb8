// Where the API server is and who we are there: from the pod we run in, or from a kubeconfig. Of a
// kubeconfig servers, CAs, client certificates, tokens (each inline, as *-data or as a file) and
// contexts are understood; what would run a program or ask a cloud for a token is refused in words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "net/async_client.hpp"

namespace aliquot::kube {

struct ClusterConfig {
  std::string host = {};
  std::uint16_t port = 443;
  bool use_tls = true;
  std::string path_prefix = {};  // of a server behind a path: `/k8s/clusters/c-1`
  net::ClientTls tls = {};
  std::string token = {};
  std::string token_file = {};  // read again when it changes; counts before `token`
  std::string name_space = "default";
};

// The value of an environment variable, or nothing.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment process_environment();

// From the service account of this pod. not_found: we are in no pod.
Result<ClusterConfig> in_cluster_config(
    const Environment& environment,
    const std::filesystem::path& secrets = "/var/run/secrets/kubernetes.io/serviceaccount");

// `context` empty: the current one. Files are named from `folder` on.
Result<ClusterConfig> parse_kubeconfig(std::string_view text, const std::filesystem::path& folder,
                                       std::string_view context = {});
Result<ClusterConfig> read_kubeconfig(const std::filesystem::path& path,
                                      std::string_view context = {});

// `kubeconfig` where it is given; else $KUBECONFIG (one file), the pod's, ~/.kube/config.
Result<ClusterConfig> find_cluster_config(const std::filesystem::path& kubeconfig = {},
                                          std::string_view context = {},
                                          const Environment& environment = process_environment());

}  // namespace aliquot::kube
