#include "cli/machine/preload.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/text.hpp"
#include "sys/file.hpp"
#include "sys/program.hpp"

namespace aliquot::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOurName = "libaliquot.so";
// The characters that end a name for the loader.
constexpr std::string_view kBetween = " \t:";

bool is_ours(std::string_view word) {
  const auto slash = word.rfind('/');
  return (slash == word.npos ? word : word.substr(slash + 1)) == kOurName;
}

// The names of a line, and the comment at its end.
struct Line {
  std::vector<std::string_view> words;
  std::string_view comment;
};
Line read_line(std::string_view line) {
  Line read;
  const auto hash = line.find('#');
  if (hash != line.npos) read.comment = line.substr(hash);
  line = line.substr(0, hash);
  while (true) {
    const auto begin = line.find_first_not_of(kBetween);
    if (begin == line.npos) return read;
    const auto end = line.find_first_of(kBetween, begin);
    read.words.push_back(line.substr(begin, end - begin));
    if (end == line.npos) return read;
    line = line.substr(end);
  }
}

Result<std::string> read_file(const std::string& path) {
  auto text = sys::read_whole(path);
  if (!text && text.error().code == Error::Code::not_found) return std::string();
  return text;
}

// Every program reads this file when it starts, so it is replaced in one step: nobody sees half of
// it.
Result<void> replace_file(const std::string& path, const std::string& text) {
  if (text.empty()) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return sys::system_error(errno, "cannot remove", path);
    }
    return {};
  }
  auto written = sys::write_whole(path, text, 0644, true);
  if (!written && written.error().code == Error::Code::permission_denied) {
    written.error().message += "; be root";
  }
  return written;
}

// The library's path without links. Only root may be able to change the file and the folders above
// it, because root's processes load it. A link could be turned elsewhere by its owner.
Result<std::string> owned_path(const fs::path& library) {
  std::error_code error;
  const fs::path real = fs::canonical(library, error);
  if (error) {
    return fail(Error::Code::not_found, "cannot look at {}: {}", library.string(), error.message());
  }
  if (!is_ours(real.string())) {
    return fail(Error::Code::invalid_argument, "{} leads to {}, which is no {}", library.string(),
                real.string(), kOurName);
  }
  for (fs::path part = real;; part = part.parent_path()) {
    struct stat info {};
    if (::stat(part.c_str(), &info) != 0) {
      return fail(Error::Code::not_found, "cannot look at {}: {}", part.string(),
                  std::strerror(errno));
    }
    const bool sticky = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
    if (info.st_uid != 0 || ((info.st_mode & 022U) != 0 && !sticky)) {
      return fail(Error::Code::permission_denied,
                  "{} is not root's alone to change, and every process would load {}: install it "
                  "where it is",
                  part.string(), library.string());
    }
    if (part == part.parent_path()) return real.string();
  }
}

// Runs a program that does nothing, with the library loaded. Returns what it says if that fails.
Result<void> try_library(const std::string& library) {
  const auto [status, out, said] = sys::run_program(
      {.file = "/bin/true", .argv = {"true"}, .environment = {{"LD_PRELOAD=" + library}}},
      sys::Streams::apart);
  if (status == 0 && said.empty()) return {};
  return fail(Error::Code::failed_state, "a program does not start with {}: {}", library,
              said.empty() ? fmt::format("status {}", status) : quote(said));
}

}  // namespace

std::string edit_preload(std::string_view text, std::string_view library) {
  std::string edited;
  if (text.ends_with('\n')) text.remove_suffix(1);
  for (const auto line : text.empty() ? std::vector<std::string_view>() : split(text, '\n')) {
    const Line read = read_line(line);
    if (std::ranges::none_of(read.words, is_ours)) {
      edited += fmt::format("{}\n", line);
      continue;
    }
    std::string kept;
    for (const auto word : read.words) {
      if (!is_ours(word)) kept += fmt::format("{}{}", kept.empty() ? "" : " ", word);
    }
    if (!read.comment.empty()) kept += fmt::format("{}{}", kept.empty() ? "" : " ", read.comment);
    if (!kept.empty()) edited += kept + "\n";
  }
  if (!library.empty()) edited += fmt::format("{}\n", library);
  return edited;
}

std::string find_in_preload(std::string_view text) {
  for (const auto line : split(text, '\n')) {
    for (const auto word : read_line(line).words) {
      if (is_ours(word)) return std::string(word);
    }
  }
  return {};
}

Result<std::string> preload_on(const std::string& root, std::string library) {
  if (!library.starts_with('/') || library.find_first_of(" \t\n:#$") != library.npos ||
      !is_ours(library)) {
    return fail(Error::Code::invalid_argument, "{} is not the full path of {}", quote(library),
                kOurName);
  }
  const std::string file = root + kPreloadFile;
  if (root.empty()) {
    library = TRY(owned_path(library));
    TRY(try_library(library));
  }
  const std::string before = TRY(read_file(file));
  const std::string after = edit_preload(before, library);
  if (before == after) return fmt::format("{} names {} already", file, library);
  TRY(replace_file(file, after));
  return fmt::format("every process started from now on loads {} ({})", library, file);
}

Result<std::string> preload_off(const std::string& root) {
  const std::string file = root + kPreloadFile;
  const std::string before = TRY(read_file(file));
  if (find_in_preload(before).empty()) return fmt::format("{} does not name {}", file, kOurName);
  TRY(replace_file(file, edit_preload(before, "")));
  return fmt::format("{} is out of {}; processes that run keep it", kOurName, file);
}

}  // namespace aliquot::cli
