#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "base/text.hpp"
#include "slurm/lua_host_test.hpp"

namespace aliquot::slurm::test {
namespace {

std::string hex(std::string_view text) {
  std::string result;
  for (const char c : text) result += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return result;
}

std::string unhex(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    result += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  }
  return result;
}

}  // namespace

std::string Called::text(const std::string& key) const {
  const auto found = fields.find(key);
  if (found == fields.end()) return "";
  if (const auto* text = std::get_if<std::string>(&found->second)) return *text;
  return std::to_string(std::get<std::int64_t>(found->second));
}

std::vector<std::string> interpreters_or_none() {
  std::vector<std::string> found;
  for (const auto* name : {"lua5.1", "lua5.2", "lua5.3", "lua5.4"}) {
    for (const auto* folder : {"/usr/bin", "/usr/local/bin"}) {
      if (std::filesystem::exists(std::filesystem::path(folder) / name)) found.emplace_back(name);
    }
  }
  if (found.empty()) found.emplace_back("");
  return found;
}

std::string name_of_interpreter(const ::testing::TestParamInfo<std::string>& each) {
  std::string name;
  for (const char c : each.param) {
    if (c != '.') name += c;
  }
  return name.empty() ? "none" : name;
}

SiteTable old_site() {
  return {.models = {{"h200", Bytes(150'754'820'096), 140, 4}, {"A100", gib(40), 40, 2}},
          .partitions = {{"main", {"h200"}}, {"mixed", {"a100", "h200"}}, {"cpu", {}}},
          .default_partition = "main",
          .whole_as_shards = true};
}

SiteTable new_site() {
  auto site = old_site();
  site.whole_as_shards = false;
  return site;
}

LuaHost::LuaHost(const std::string& interpreter, const std::vector<std::string>& texts) {
  std::string pattern = (std::filesystem::temp_directory_path() / "aliquot-lua-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) std::abort();
  folder_ = pattern;
  std::vector<std::string> words{interpreter, ALIQUOT_MOCK_SLURMCTLD};
  for (const auto& text : texts) {
    words.push_back((folder_ / fmt::format("{}.lua", words.size())).string());
    std::ofstream(words.back(), std::ios::binary) << text;
  }
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  std::array<int, 2> down{};
  std::array<int, 2> up{};
  if (::pipe2(down.data(), O_CLOEXEC) != 0 || ::pipe2(up.data(), O_CLOEXEC) != 0) std::abort();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(down[0], STDIN_FILENO);
    ::dup2(up[1], STDOUT_FILENO);
    for (const int fd : {down[0], down[1], up[0], up[1]}) ::close(fd);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(down[0]);
  ::close(up[1]);
  to_ = ::fdopen(down[1], "w");
  from_ = ::fdopen(up[0], "r");
}

LuaHost::~LuaHost() {
  std::fclose(to_);
  std::fclose(from_);
  ::waitpid(pid_, nullptr, 0);
  std::filesystem::remove_all(folder_);
}

Called LuaHost::submit(const Fields& fields, const std::vector<std::string>& spank) {
  return call("submit", fields, spank);
}

void LuaHost::job(const Fields& fields) { static_cast<void>(call("job", fields, {})); }

void LuaHost::reservation(const Fields& fields) {
  static_cast<void>(call("reservation", fields, {}));
}

Called LuaHost::modify(const Fields& fields) { return call("modify", fields, {}); }

Called LuaHost::call(const std::string& name, const Fields& fields,
                     const std::vector<std::string>& spank) {
  std::string line = name;
  for (const auto& [key, value] : fields) {
    const auto* text = std::get_if<std::string>(&value);
    line += text != nullptr ? fmt::format(" {}={}", key, hex(*text))
                            : fmt::format(" {}=#{}", key, std::get<std::int64_t>(value));
  }
  for (const auto& entry : spank) line += " spank=" + hex(entry);
  fmt::print(to_, "{}\n", line);
  std::fflush(to_);

  char* answer = nullptr;
  std::size_t size = 0;
  const auto length = ::getline(&answer, &size, from_);
  const std::string text(answer, length > 0 ? static_cast<std::size_t>(length - 1) : 0);
  std::free(answer);
  if (text.empty()) return {"died", {}};

  Called called;
  const auto words = split(text, ' ');
  called.code = words.front();
  for (const auto word : std::vector(words.begin() + 1, words.end())) {
    const auto equals = word.find('=');
    const auto value = word.substr(equals + 1);
    auto& field = called.fields[std::string(word.substr(0, equals))];
    if (value.starts_with('#')) {
      field = static_cast<std::int64_t>(std::stoll(std::string(value.substr(1))));
    } else {
      field = unhex(value);
    }
  }
  return called;
}

}  // namespace aliquot::slurm::test
