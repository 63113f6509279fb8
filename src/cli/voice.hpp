// A Slurm-named command's voice on stderr: `sbatch: error: …`, a line for each line of the text.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace aliquot::cli {

class Voice {
 public:
  explicit Voice(std::string name) : name_(std::move(name)) {}

  void error(std::string_view text) const;  // also with --quiet
  void fatal(std::string_view text) const;
  void info(std::string_view text) const;     // not with --quiet
  void verbose(std::string_view text) const;  // with -v

  void set_level(int level) { level_ = level; }  // -1: quiet; 0; 1: -v; 2: -vv; …
  [[nodiscard]] int level() const { return level_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  void say(std::string_view kind, std::string_view text) const;

  std::string name_;
  int level_ = 0;
};

}  // namespace aliquot::cli
