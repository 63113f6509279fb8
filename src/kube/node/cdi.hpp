// What the runtime puts into a container that has a claim: a CDI specification, a file for each
// claim, with a device for each of its requests. It is the same as a container with devices of the
// device plugin gets to see (container_view.hpp). Pure, but for where the files are.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "kube/node/container_view.hpp"

namespace aliquot::kube {

// By the device's name.
using CdiDevices = std::map<std::string, ContainerView>;

std::string cdi_kind(std::string_view domain);
std::string cdi_name(const std::string& claim_uid, const std::string& request);
// As the runtime is told: "aliquot.dev/claim=…".
std::string cdi_id(std::string_view domain, const std::string& claim_uid,
                   const std::string& request);
std::string write_cdi(std::string_view domain, const CdiDevices& devices);

std::filesystem::path cdi_file(const std::filesystem::path& folder, std::string_view domain,
                               const std::string& claim_uid);
// The claim of a file's name; empty: it is none of ours.
std::string claim_of_cdi_file(const std::filesystem::path& file, std::string_view domain);

}  // namespace aliquot::kube
