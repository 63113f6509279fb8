// A site as its slurm.conf describes it: keys, nodes and partitions, with the place of each, so
// that setup can edit them and check can name them. Read with everything it includes. Knows no more
// of Slurm's keys than we ask for.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "slurm/conf_text.hpp"
#include "slurm/site_settings.hpp"
#include "slurm/site_table.hpp"
#include "slurm/slurm_version.hpp"

namespace aliquot::slurm {

// `slurm-wlm 22.05.8`, `23.11.4-1`: the first numbers in it.
std::optional<SlurmVersion> parse_slurm_version(std::string_view text);
std::string to_string(const SlurmVersion& version);

struct ConfFile {
  std::string path;
  std::vector<std::string> lines;
  std::vector<ConfLine> entries;
};

// Where a line stands: of files[file], entries[entry].
struct ConfPlace {
  std::size_t file = 0;
  std::size_t entry = 0;
  friend auto operator<=>(const ConfPlace&, const ConfPlace&) = default;
};

struct SiteNode {
  std::string name;
  std::string host;  // NodeHostname; as a rule the name
  std::string gres;  // as it counts, from its line or DEFAULT's
  std::vector<std::string> features;
  ConfPlace place;

  [[nodiscard]] bool has_gpus() const;
};

struct SitePartition {
  std::string name;
  std::vector<std::string> nodes;
  std::string billing_weights;
  bool is_default = false;
  ConfPlace place;
};

struct Site {
  std::vector<ConfFile> files;  // slurm.conf first
  std::vector<SiteNode> nodes;
  std::vector<SitePartition> partitions;

  // The value that counts of a key that stands alone, and where it is.
  [[nodiscard]] std::optional<std::string> get(std::string_view key) const;
  [[nodiscard]] std::optional<ConfPlace> find(std::string_view key) const;
  // Of a key that may stand there several times.
  [[nodiscard]] std::vector<std::string> all(std::string_view key) const;
  [[nodiscard]] const ConfLine& line(ConfPlace place) const {
    return files[place.file].entries[place.entry];
  }
  // The folder of slurm.conf, where Slurm looks for its other files.
  [[nodiscard]] std::string folder() const;
  [[nodiscard]] std::string plugstack_path() const;
};

using ReadFile = std::function<Result<std::string>(const std::string& path)>;

// `read` gives a file's text. An included file that is not there is an error, as for Slurm.
Result<Site> read_site(const std::string& slurm_conf, const ReadFile& read);

// The same without nodes and partitions, for who asks for keys alone and must not stumble over the
// rest.
Result<Site> read_keys(const std::string& slurm_conf, const ReadFile& read);

// GPUs of one model on some nodes.
struct GpuGroup {
  std::vector<std::string> nodes;
  std::string model;
  std::int64_t count = 0;
  Bytes memory;       // of one
  std::string files;  // "/dev/nvidia[0-3]"; %n: the node's name; empty: not told
  friend bool operator==(const GpuGroup&, const GpuGroup&) = default;
};

// `n[1-4]=h200:4:143156:/dev/nvidia[0-3]`; the nodes are `here` where there are none. Memory is a
// size (bare: MiB), or bytes where the number is beyond any GPU.
Result<GpuGroup> parse_gpu_group(std::string_view text, const std::string& here);
// /dev/nvidia0 and on.
std::string usual_files(std::int64_t count);
std::string format_gpu_group(const GpuGroup& group);

// Whether each GPU is a gres type of its own, which jobs name: newer Slurms spread shares
// themselves.
bool names_each_gpu(const ShareSettings& share, const SlurmVersion& version);

// What job_submit.lua needs to know: the models that the partitions have, and the settings.
SiteTable make_site_table(const Site& site, const std::vector<GpuGroup>& gpus,
                          const SiteSettings& settings, const SlurmVersion& version);

}  // namespace aliquot::slurm
