// The nodes' own weights, on disk: slurmctld has only those that we set, so a balancer that comes
// back after a crash would take its own for the site's. Written before any weight is changed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "slurm/balancer/weights.hpp"

namespace aliquot::slurm {

std::string format_bases(const Bases& bases);
// What is no weight of a node is left out; what is no JSON object is an error.
Result<Bases> parse_bases(std::string_view text);

// No file: no bases yet. The folder is made where it is missing.
Result<Bases> load_bases(const std::filesystem::path& path);
Result<void> store_bases(const std::filesystem::path& path, const Bases& bases);

}  // namespace aliquot::slurm
