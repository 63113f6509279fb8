// Tells the library where the grants of our jobs are, for processes that lost their environment
// (enforce/find_grant.hpp): by the control group they are in. Of use where the library is loaded by
// /etc/ld.so.preload, and only by root's daemons in their usual places.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.hpp"

namespace aliquot::node {

// Whether a daemon with this run folder is one that the library looks for.
bool has_public_place(const std::filesystem::path& run);

// name: ALIQUOT_PLACE_…; group: what the path of a job's control group has in it, before job_N;
// run: the daemon's run folder. places is for tests; empty: ALIQUOT_PLACES.
Result<void> publish_place(std::string_view name, std::string_view group,
                           const std::filesystem::path& run,
                           const std::filesystem::path& places = {});

}  // namespace aliquot::node
