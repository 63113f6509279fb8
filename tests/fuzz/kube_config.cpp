// A kubeconfig and what else of a cluster comes as text, whatever it holds: read or refused.
#include <cstdlib>

#include "fuzz.hpp"
#include "kube/api/api.hpp"
#include "kube/api/base64.hpp"
#include "kube/api/cluster_config.hpp"
#include "kube/api/moments.hpp"
#include "kube/api/yaml.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  const auto value = kube::parse_yaml(text);
  if (!value && value.error().message.empty()) std::abort();
  const auto config = kube::parse_kubeconfig(text, "/etc");
  if (config && (config->host.empty() || config->port == 0)) std::abort();
  const std::string wrapped =
      "clusters: [{name: c, cluster: {server: x}}]\ncontexts: [{name: x, context: {cluster: c, "
      "user: u}}]\ncurrent-context: x\nusers:\n- name: u\n  user:\n    token: " +
      std::string(text);
  static_cast<void>(kube::parse_kubeconfig(wrapped, "/etc"));

  if (const auto time = kube::parse_moment(text)) {
    if (time->ms() > 0 && kube::parse_moment(kube::format_moment(*time)) != time) std::abort();
  }
  if (const auto bytes = kube::decode_base64(text)) {
    if (kube::decode_base64(kube::encode_base64(*bytes)) != bytes) std::abort();
  }
  if (const auto object = kube::parse_object(text)) {
    static_cast<void>(kube::meta_text(*object, "name"));
    static_cast<void>(kube::find_number(*object, "code"));
  }
  static_cast<void>(kube::object_of(kube::ApiResponse{409, std::string(text)}));
  return 0;
}
