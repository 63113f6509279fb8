// The commands of `aliquot slurm`, one file each. A command adds itself and its options below
// `parent`; when the user asked for it, Invocation::run is what to do.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "gpu/devices.hpp"
#include "slurm/site.hpp"
#include "slurm/site_settings.hpp"

namespace aliquot::slurm {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kMisused = 2;

struct Invocation {
  std::function<int()> run;  // returns the exit status
};

void add_init(CLI::App& parent, Invocation& invocation);
void add_setup(CLI::App& parent, Invocation& invocation);
void add_check(CLI::App& parent, Invocation& invocation);
void add_view(CLI::App& parent, Invocation& invocation);

// "aliquot: TEXT" on stderr; always kFailed.
int complain(std::string_view text);

// What one of Slurm's own commands prints; nothing where it fails or takes longer.
std::string output_of(const std::vector<std::string>& words, Millis patience = seconds(2));

// What setup and check take.
struct SiteOptions {
  std::string config;
  std::string slurm_conf;
  std::string slurm_version;
  std::string plugin;
  bool no_confine = false;
};
void add_site_options(CLI::App& command, SiteOptions& options);

std::string find_slurm_conf(const SiteOptions& options, const SiteSettings& settings);
// The Slurm that is installed here, by asking its programs; or what the user says.
Result<SlurmVersion> find_version(const std::string& given);
// aliquot_spank.so, where it was installed; empty: nowhere.
std::string find_plugin(const std::string& given);
// The name of this machine, and of the node that it is.
// The GPUs here: the driver's, or those of a simulation ("h200:4").
Result<std::vector<gpu::Device>> find_gpus(const std::string& simulate);
// Those of one model together, on no node yet.
std::vector<GpuGroup> group_gpus(const std::vector<gpu::Device>& devices);

// What `check` prints of this machine, without options. The exit status.
int check_site();

}  // namespace aliquot::slurm
