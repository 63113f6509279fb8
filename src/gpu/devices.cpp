#include "gpu/devices.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/text.hpp"
#include "gpu/nvml_devices.hpp"

namespace aliquot::gpu {
namespace {

class NoDevices final : public Devices {
 public:
  explicit NoDevices(std::string why) : why_(std::move(why)) {}

  Result<std::vector<Device>> list() override { return std::vector<Device>{}; }
  Result<std::vector<Sample>> sample() override { return std::vector<Sample>{}; }
  [[nodiscard]] std::string driver_version() const override { return {}; }
  [[nodiscard]] bool simulated() const override { return false; }
  [[nodiscard]] std::string description() const override { return "no GPUs: " + why_; }

 private:
  std::string why_;
};

bool starts_with_digit(std::string_view word) {
  return !word.empty() && word.front() >= '0' && word.front() <= '9';
}

// Words of a GPU's name that say how it is built, not what it is.
bool is_packaging(std::string_view word) {
  constexpr std::array kWords = {"nvidia", "tesla",      "geforce", "quadro",      "pcie",  "nvl",
                                 "gpu",    "generation", "laptop",  "(simulated)", "hbm2e", "sxm"};
  if (std::ranges::find(kWords, word) != kWords.end()) return true;
  if (word.starts_with("sxm") || word.starts_with("hbm")) return true;
  return starts_with_digit(word) && word.ends_with("gb");
}

}  // namespace

Result<void> Devices::set_exclusive(const GpuId& gpu, bool) {
  return fail(Error::Code::unsupported, "{} has no compute modes", gpu);
}

std::vector<std::string> environment(const StandIn& standin) {
  std::vector<std::string> variables = {"ALIQUOT_STANDIN=" + standin.spec,
                                        "ALIQUOT_STANDIN_STATE=" + standin.state.string()};
  if (standin.shared) variables.emplace_back("ALIQUOT_STANDIN_SHARED=1");
  return variables;
}

Result<std::unique_ptr<Devices>> open_devices(const std::optional<StandIn>& standin) {
  if (!standin) {
    const auto library = TRY(NvmlLibrary::load("libnvidia-ml.so.1"));
    return NvmlDevices::create(library, false);
  }
  const auto path = standin->directory / "libnvidia-ml.so.1";
  std::error_code ignored;
  if (!standin->directory.is_absolute() || !std::filesystem::exists(path, ignored)) {
    return fail(Error::Code::not_found,
                "no stand-in for NVML at {}: give the full path of its folder", path.string());
  }
  for (const auto& variable : environment(*standin)) {
    const auto equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  const auto library = TRY(NvmlLibrary::load(path.string()));
  return NvmlDevices::create(library, true);
}

std::unique_ptr<Devices> no_devices(std::string why) {
  return std::make_unique<NoDevices>(std::move(why));
}

std::string mig_profile(std::string_view name) {
  constexpr std::string_view kWord = " MIG ";
  const auto at = name.find(kWord);
  return at == name.npos ? "" : to_lower(name.substr(at + kWord.size()));
}

std::string short_model(std::string_view name) {
  std::string words = to_lower(name.substr(0, name.find(" MIG ")));
  std::ranges::replace(words, '-', ' ');
  std::string model;
  for (const auto word : split(words, ' ')) {
    if (word.empty() || is_packaging(word)) continue;
    for (const char c : word) {
      if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) model += c;
    }
  }
  return model.empty() ? "gpu" : model;
}

}  // namespace aliquot::gpu
