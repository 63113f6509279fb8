// The text of aliquot_submit.lua, which slurmctld's job_submit/lua runs for every job: the site's
// table and the code of lua/ behind it, which is the same everywhere and embedded at build time.
// The names in the table come from slurm.conf and from users' settings; whatever they hold, they
// stay strings.
#pragma once

#include <string>
#include <string_view>

#include "slurm/site_table.hpp"

namespace aliquot::slurm {

// The first line of the file, by which setup knows its own.
inline constexpr std::string_view kSubmitLuaMark =
    "-- Written by 'aliquot slurm setup'; do not edit.";

// The site must pass check().
std::string make_submit_lua(const SiteTable& site);

}  // namespace aliquot::slurm
