#include "kube/node/install.hpp"

#include <sys/stat.h>

#include <map>
#include <string>

#include "kube/node/resources.hpp"
#include "sys/file.hpp"
#include "sys/folder.hpp"

namespace aliquot::kube {
namespace {

namespace fs = std::filesystem;

Result<fs::path> install(const std::map<std::string, std::string>& texts, const fs::path& into) {
  DeviceIds all;
  for (const auto& [name, text] : texts) all.push_back(name + "\n" + text);
  constexpr mode_t kForAll = 0755;
  const fs::path folder = into / digest_of(all);
  TRY(sys::make_own_folder(into, kForAll));
  TRY(sys::make_own_folder(folder, kForAll));
  for (const auto& [name, text] : texts) {
    std::error_code error;
    if (fs::file_size(folder / name, error) == text.size() && !error) continue;
    TRY(sys::write_whole(folder / name, text, kForAll, false));
  }
  return folder;
}

}  // namespace

Result<fs::path> install_file(const fs::path& file, const std::string& beside,
                              const std::string& text, const fs::path& into) {
  std::error_code error;
  const fs::path real = fs::canonical(file, error);
  return install({{file.filename(), TRY(sys::read_whole(error ? file : real))}, {beside, text}},
                 into);
}

Result<fs::path> install_folder(const fs::path& folder, const fs::path& into) {
  std::map<std::string, std::string> texts;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path real = fs::canonical(entry.path(), error);
    if (error || !fs::is_regular_file(real, error)) continue;
    texts[entry.path().filename()] = TRY(sys::read_whole(real));
  }
  if (texts.empty()) {
    return fail(Error::Code::not_found, "there is nothing in {}", folder.string());
  }
  return install(texts, into);
}

}  // namespace aliquot::kube
