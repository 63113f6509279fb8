#include "slurm/lua_check.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/text.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

// What of `slurm` there is while a script is loaded; what it logs goes nowhere. Its own answer is
// what is wrong, or nothing.
constexpr const char* kLoader = R"(
local path = ...
slurm = setmetatable({ ERROR = -1, FAILURE = -1, SUCCESS = 0, jobs = {}, reservations = {} }, {
  __index = function(_, name)
    if name:match("^[%u%d_]+$") then return 0 end
    return function() return 0 end
  end,
})
print, io.write = function() end, function() end
local chunk, why = loadfile(path)
if not chunk then return why end
local ok, error_ = pcall(chunk)
if not ok then return tostring(error_) end
for _, name in ipairs({ "slurm_job_submit", "slurm_job_modify" }) do
  if type(_G[name]) ~= "function" then return path .. ": it has no function " .. name end
end
)";

// Of Lua's C API, as found in the library.
class Lua {
 public:
  static Result<Lua> open(const std::vector<std::string>& libraries) {
    for (const std::string& name : libraries) {
      if (void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL)) return Lua(library);
    }
    return fail(Error::Code::unsupported, "there is no Lua here");
  }

  // What the loader returns for this file.
  Result<std::string> load(const std::string& path) {
    void* state = call<void*>("luaL_newstate");
    if (state == nullptr) return fail(Error::Code::internal, "Lua does not start");
    call<void>("luaL_openlibs", state);
    call<int>("luaL_loadstring", state, kLoader);
    call<void>("lua_pushstring", state, path.c_str());
    // lua_pcall is a function up to 5.1, and a macro around lua_pcallk since.
    const int failed =
        ::dlsym(library_, "lua_pcallk") != nullptr
            ? call<int>("lua_pcallk", state, 1, 1, 0, std::intptr_t{0}, static_cast<void*>(nullptr))
            : call<int>("lua_pcall", state, 1, 1, 0);
    std::string said = text(state);
    call<void>("lua_close", state);
    if (failed != 0 && said.empty()) said = path + " does not load";
    return said;
  }

 private:
  explicit Lua(void* library) : library_(library) {}

  template <class R, class... Args>
  R call(const char* name, Args... args) {
    const auto function = reinterpret_cast<R (*)(Args...)>(::dlsym(library_, name));
    if (function == nullptr) std::abort();
    return function(args...);
  }
  std::string text(void* state) {
    const char* found =
        call<const char*>("lua_tolstring", state, -1, static_cast<std::size_t*>(nullptr));
    return found == nullptr ? "" : found;
  }

  void* library_;
};

}  // namespace

std::vector<std::string> lua_libraries(std::string_view plugin) {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (std::ranges::count(names, name) == 0) names.emplace_back(name);
  };
  constexpr std::string_view kStart = "liblua";
  for (auto at = plugin.find(kStart); at != plugin.npos; at = plugin.find(kStart, at + 1)) {
    const auto end = plugin.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.+-", at);
    const auto name = plugin.substr(at, end == plugin.npos ? end : end - at);
    if (name.find(".so") != name.npos && end != plugin.npos && plugin[end] == '\0') add(name);
  }
  // What the plugin is linked with has the number of an interface.
  std::stable_partition(names.begin(), names.end(),
                        [](const auto& name) { return !name.ends_with(".so"); });
  for (const auto* name : {"liblua5.4.so.0", "liblua5.3.so.0", "liblua-5.4.so", "liblua-5.3.so",
                           "liblua5.2.so.0", "liblua5.1.so.0", "liblua-5.1.so"}) {
    add(name);
  }
  return names;
}

std::string find_lua_plugin(const std::string& plugin_dir) {
  std::vector<std::string> folders;
  for (const auto folder : split(plugin_dir, ':')) folders.emplace_back(folder);
  for (const auto* folder :
       {"/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib/aarch64-linux-gnu/slurm-wlm",
        "/usr/lib64/slurm", "/usr/lib/slurm", "/usr/local/lib/slurm", "/opt/slurm/lib/slurm",
        "/opt/slurm/lib64/slurm"}) {
    folders.emplace_back(folder);
  }
  std::error_code error;
  for (const auto& folder : folders) {
    const fs::path file = fs::path(folder) / "job_submit_lua.so";
    if (!folder.empty() && fs::exists(file, error)) return file.string();
  }
  return "";
}

Result<void> try_submit_lua(const std::string& path, const std::vector<std::string>& libraries) {
  Lua lua = TRY(Lua::open(libraries));
  const std::string said = TRY(lua.load(path));
  if (said.empty()) return {};
  return fail(Error::Code::invalid_argument, "{}", said);
}

}  // namespace aliquot::slurm
