// Names of the files that srun opens for its tasks: %j, %t and their kin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aliquot::cli {

struct FileNames {
  std::int64_t job_id = 0;
  std::int64_t step_id = 0;
  std::int64_t task = 0;
  std::optional<std::int64_t> array_job_id;
  std::optional<std::int64_t> array_task_id;
  std::string host;
  std::string user;
  std::string job_name;
};

// `%%`, `%A %a %J %j %N %n %s %t %u %x`, numbers padded as in `%4t`. A backslash anywhere keeps all
// as it is.
std::string expand_file_pattern(std::string_view pattern, const FileNames& names);

}  // namespace aliquot::cli
