// Which of the caller's variables a job gets: --export.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aliquot::cli {

// `NAME=value` each, a name once.
class Environment {
 public:
  Environment() = default;
  explicit Environment(const char* const* variables);  // as in environ

  void set(std::string_view name, std::string_view value);
  void set(std::string_view assignment);  // `NAME=value`
  void unset(std::string_view name);
  [[nodiscard]] std::optional<std::string_view> get(std::string_view name) const;
  [[nodiscard]] const std::vector<std::string>& variables() const { return variables_; }

 private:
  [[nodiscard]] std::size_t find(std::string_view name) const;

  std::vector<std::string> variables_;
};

struct Exported {
  Environment environment;
  bool login = false;  // the login environment is the base, these come on top
};

// `choice` is --export's value: ALL, NONE, NIL or names and assignments, maybe with ALL among them;
// commas inside quotes do not separate. Slurm's own variables always travel.
Exported export_environment(const Environment& mine, const std::optional<std::string>& choice);

// What the daemon grants a job or step, on top of the caller's own. The folders of its search paths
// go in front of the caller's: the daemon cannot know what the caller has put there since.
void add_granted(Environment& environment, const std::vector<std::string>& granted);

// Leaves out what describes the job the caller runs in: the new job is another one.
void forget_job(Environment& environment);

}  // namespace aliquot::cli
