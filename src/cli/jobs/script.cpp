#include "cli/jobs/script.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/text.hpp"
#include "sys/fd.hpp"
#include "sys/program.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kDirective = "#SBATCH";
constexpr std::size_t kMostScript = std::size_t{4} << 20;  // Slurm's own limit

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r'; }

Misuse refuse(std::string message) { return {1, std::move(message)}; }

std::string find_on_path(const std::string& name) {
  if (name.find('/') != name.npos || ::access(name.c_str(), F_OK) == 0) return name;
  const char* path = std::getenv("PATH");
  auto found = sys::find_in_path(name, path == nullptr ? "" : path, R_OK);
  return found.empty() ? name : found;
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

// what: in the message that it cannot be read.
Parsed<Script> read_script(int file, std::string path, std::string_view what) {
  auto text = sys::read_all(file, kMostScript);
  if (!text && errno == EISDIR) text = "";  // a folder has no text
  if (text) return Script{std::move(*text), std::move(path)};
  return tl::make_unexpected(
      refuse(errno == EFBIG ? fmt::format("The script exceeds the maximum of {} bytes", kMostScript)
                            : fmt::format("Unable to read {}", what)));
}

}  // namespace

Parsed<Script> read_script_file(const std::string& name) {
  const auto path = find_on_path(name);
  const sys::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return tl::make_unexpected(refuse(fmt::format("Unable to open file {}", name)));
  return read_script(file.get(), absolute(path), fmt::format("file {}", name));
}

Parsed<Script> read_script_stdin() {
  return read_script(STDIN_FILENO, {}, "the script from the standard input");
}

Script wrap_script(std::string_view command) {
  return {fmt::format("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{}\n", command),
          {}};
}

Parsed<void> check_script(std::string_view text) {
  if (text.empty()) return tl::make_unexpected(refuse("Batch script is empty!"));
  if (text.find_first_not_of(" \t\r\n\v\f") == text.npos) {
    return tl::make_unexpected(refuse("Batch script contains only whitespace!"));
  }
  if (!text.starts_with("#!")) {
    return tl::make_unexpected(
        refuse("This does not look like a batch script.  The first\n"
               "line must start with #! followed by the path to an interpreter.\n"
               "For instance: #!/bin/sh"));
  }
  if (text.find('\0') != text.npos) {
    return tl::make_unexpected(refuse(
        "The Slurm controller does not allow scripts that\ncontain a NULL character '\\0'."));
  }
  if (text.find("\r\n") != text.npos) {
    return tl::make_unexpected(
        refuse("Batch script contains DOS line breaks (\\r\\n)\n"
               "instead of expected UNIX line breaks (\\n)."));
  }
  return {};
}

std::vector<std::string> split_directive(std::string_view line, std::string_view* unmatched) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quoted = 0;
  std::size_t after = 0;  // the last word that is whole
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted != 0) {
      if (c == quoted) {
        quoted = 0;
      } else if (c == '\\' && quoted == '"' && i + 1 < line.size() &&
                 (line[i + 1] == '"' || line[i + 1] == '\\')) {
        word += line[++i];
      } else {
        word += c;
      }
    } else if (c == '"' || c == '\'') {
      quoted = c;
      in_word = true;
    } else if (c == '\\' && i + 1 < line.size()) {
      word += line[++i];
      in_word = true;
    } else if (c == '#') {
      break;
    } else if (is_blank(c)) {
      if (in_word) {
        words.push_back(std::move(word));
        after = i;
      }
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quoted != 0 && unmatched != nullptr) *unmatched = line.substr(after);
  if (in_word) words.push_back(std::move(word));
  return words;
}

Parsed<std::vector<Word>> read_directives(std::string_view text, bool quiet,
                                          std::string_view name) {
  std::vector<Word> all;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);

    if (!line.starts_with(kDirective)) {
      const auto first = line.find_first_not_of(" \t\v\f\r");
      if (first != line.npos && line[first] != '#') break;
      continue;
    }
    std::string_view unmatched;
    auto words = split_directive(line.substr(kDirective.size()), &unmatched);
    if (!unmatched.empty()) {
      const char quote = unmatched[unmatched.find_first_of("\"'")];
      return tl::make_unexpected(Misuse{
          1, fmt::format("{}: line {}: Unmatched `{}` in [{}]", name, number, quote, unmatched),
          true});
    }
    if (words.empty()) continue;
    if (words[0] == "hetjob" || words[0] == "packjob") {
      return tl::make_unexpected(
          refuse("heterogeneous jobs need several nodes: this is one machine"));
    }
    std::vector<char*> argv;
    std::string sbatch = "sbatch";
    argv.push_back(sbatch.data());
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const auto argc = static_cast<int>(argv.size() - 1);
    auto read = read_arguments(SlurmCommand::sbatch, argc, argv.data(), quiet);
    if (!read) return tl::make_unexpected(read.error());
    if (read->rest < argv.size() - 1) {
      return tl::make_unexpected(
          refuse(fmt::format("Invalid directive found in batch script: {}", argv[read->rest])));
    }
    for (auto& word : read->words) all.push_back(std::move(word));
  }
  return all;
}

}  // namespace aliquot::cli
