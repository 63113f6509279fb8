// What `aliquot slurm setup` changes in a site's files: computed from their texts, written by
// setup_files. Each file is first put back to what the site itself wrote (conf_text.hpp), so that
// setting up again changes nothing, and undoing is the same without adding anything.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "slurm/site.hpp"
#include "slurm/site_settings.hpp"

namespace aliquot::slurm {

struct SetupInput {
  std::string slurm_conf = {};
  SiteSettings settings = {};
  SlurmVersion version = {};
  std::vector<GpuGroup> gpus = {};  // those told now; earlier ones are remembered in gres.conf
  std::string plugin = {};          // aliquot_spank.so; empty: not installed here
  // Once given, these two hold until the setup is undone.
  bool confine = true;   // devices by cgroups
  bool billing = false;  // count shares and whole GPUs together
};

struct FileChange {
  std::string path;
  std::optional<std::string> before;  // nothing: there is no such file
  std::optional<std::string> after;   // nothing: it is removed
};

struct SetupPlan {
  std::vector<FileChange> changes;  // only what differs
  std::vector<std::string> notes;   // what to know, a line each
  std::vector<GpuGroup> gpus;       // all of the site that are known
};

// `read` fails with not_found for a file that is not there.
Result<SetupPlan> plan_setup(const SetupInput& input, const ReadFile& read);
Result<SetupPlan> plan_undo(const std::string& slurm_conf, const ReadFile& read);

}  // namespace aliquot::slurm
