#include "node/places.hpp"

#include <unistd.h>

#include <string>

#include "enforce/abi.h"
#include "sys/file.hpp"
#include "sys/folder.hpp"

namespace aliquot::node {

namespace fs = std::filesystem;

bool has_public_place(const fs::path& run) {
  const std::string home = fs::path(ALIQUOT_PLACES).parent_path();
  const std::string mine = run.lexically_normal();
  return ::geteuid() == 0 && (mine == home || mine.starts_with(home + "/"));
}

Result<void> publish_place(std::string_view name, std::string_view group, const fs::path& run,
                           const fs::path& places) {
  const fs::path folder = places.empty() ? fs::path(ALIQUOT_PLACES) : places;
  TRY(sys::make_own_folder(folder, 0755));
  return sys::write_whole(folder / name, fmt::format("{}\n{}\n", group, (run / "grants").string()),
                          0644, false);
}

}  // namespace aliquot::node
