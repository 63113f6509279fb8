// Whether slurmctld can load its job_submit.lua. One that does not compile, or fails while it is
// loaded, ends slurmctld at its next start, and until then goes unnoticed. It is loaded here as
// slurmctld loads it: with the Lua that Slurm's plugin has, and a table `slurm` to talk to. The
// code is the site's: a process of its own runs it, as SlurmUser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::slurm {

// The names of Lua libraries in job_submit_lua.so (its text), best first, and then whatever else
// there may be.
std::vector<std::string> lua_libraries(std::string_view plugin);

// Where Slurm has its plugins: `plugin_dir` is PluginDir of slurm.conf, with colons. Empty: no
// job_submit_lua.so anywhere.
std::string find_lua_plugin(const std::string& plugin_dir);

// Runs the file, in this process, and says why slurmctld would not. unsupported: no Lua here.
Result<void> try_submit_lua(const std::string& path, const std::vector<std::string>& libraries);

}  // namespace aliquot::slurm
