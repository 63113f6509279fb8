#include "kube/node/cdi.hpp"

#include <boost/json.hpp>

namespace aliquot::kube {
namespace {

namespace json = boost::json;

// Since when mounts and device nodes are as they are written here.
constexpr const char* kVersion = "0.5.0";
constexpr std::string_view kSuffix = ".json";

std::string file_prefix(std::string_view domain) { return std::string(domain) + "-claim-"; }

json::object edits_of(const ContainerView& view) {
  json::array environment;
  for (const auto& [name, value] : view.environment) environment.emplace_back(name + "=" + value);
  json::array mounts;
  for (const MountPoint& mount : view.mounts) {
    mounts.push_back(json::object{
        {"hostPath", mount.host},
        {"containerPath", mount.container},
        {"options", json::array{mount.read_only ? "ro" : "rw", "nosuid", "nodev", "rbind"}}});
  }
  json::array nodes;
  for (const std::string& node : view.device_nodes) {
    nodes.push_back(json::object{{"path", node}, {"hostPath", node}, {"permissions", "rw"}});
  }
  json::object edits{{"env", std::move(environment)}, {"mounts", std::move(mounts)}};
  if (!nodes.empty()) edits["deviceNodes"] = std::move(nodes);
  return edits;
}

}  // namespace

std::string cdi_kind(std::string_view domain) { return std::string(domain) + "/claim"; }

std::string cdi_name(const std::string& claim_uid, const std::string& request) {
  return claim_uid + "-" + request;
}

std::string cdi_id(std::string_view domain, const std::string& claim_uid,
                   const std::string& request) {
  return cdi_kind(domain) + "=" + cdi_name(claim_uid, request);
}

std::string write_cdi(std::string_view domain, const CdiDevices& devices) {
  json::array all;
  for (const auto& [name, view] : devices) {
    all.push_back(json::object{{"name", name}, {"containerEdits", edits_of(view)}});
  }
  return json::serialize(json::object{
             {"cdiVersion", kVersion}, {"kind", cdi_kind(domain)}, {"devices", std::move(all)}}) +
         "\n";
}

std::filesystem::path cdi_file(const std::filesystem::path& folder, std::string_view domain,
                               const std::string& claim_uid) {
  return folder / (file_prefix(domain) + claim_uid + std::string(kSuffix));
}

std::string claim_of_cdi_file(const std::filesystem::path& file, std::string_view domain) {
  const std::string name = file.filename();
  const std::string prefix = file_prefix(domain);
  if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) return {};
  return name.substr(prefix.size(), name.size() - prefix.size() - kSuffix.size());
}

}  // namespace aliquot::kube
