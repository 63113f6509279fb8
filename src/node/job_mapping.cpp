#include "node/job_mapping.hpp"

#include <system_error>

#include "sys/file.hpp"

namespace aliquot::node {

Result<void> JobMapping::write(const Jobs& jobs) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    return fail(Error::Code::unavailable, "cannot make {}: {}", folder_.string(), error.message());
  }
  for (const auto& [index, ids] : jobs) {
    const auto before = written_.find(index);
    if (before != written_.end() && before->second == ids) continue;
    std::string text;
    for (const std::string& id : ids) text += id + "\n";
    const auto file = folder_ / std::to_string(index);
    TRY(sys::write_whole(file, text, 0644, false));
    written_[index] = ids;
  }
  return {};
}

}  // namespace aliquot::node
