#include "standin/state/visible.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

namespace aliquot::standin {
namespace {

std::optional<unsigned> find_device(State& state, const std::vector<unsigned>& offered,
                                    std::string_view entry) {
  if (entry.starts_with("GPU-")) {
    std::optional<unsigned> found;
    for (const unsigned gpu : offered) {
      if (!uuid_text(uuid_bytes(state.model(gpu), gpu)).starts_with(entry)) continue;
      if (found) return std::nullopt;
      found = gpu;
    }
    return found;
  }
  // The driver reads an index as strtol does and ignores what follows the digits.
  unsigned index = 0;
  const auto [end, error] = std::from_chars(entry.begin(), entry.end(), index);
  if (error != std::errc{} || index >= offered.size()) return std::nullopt;
  return offered[index];
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Whatever else is wrong with the file is no matter: no driver is behind it.
bool may_open(const char* prefix, unsigned gpu) {
  if (*prefix == '\0') return true;
  const int fd = ::open((prefix + std::to_string(gpu)).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return errno != EPERM && errno != EACCES;
  close(fd);
  return true;
}

}  // namespace

std::vector<unsigned> device_order(State& state) {
  std::vector<unsigned> order(state.gpu_count());
  std::iota(order.begin(), order.end(), 0U);
  const char* prefix = state.data().devices;
  std::erase_if(order, [&](unsigned gpu) { return !may_open(prefix, gpu); });
  const char* wanted = std::getenv("CUDA_DEVICE_ORDER");
  if (wanted != nullptr && std::string_view(wanted) == "PCI_BUS_ID") return order;
  std::stable_sort(order.begin(), order.end(), [&](unsigned a, unsigned b) {
    const auto speed = [&](unsigned g) {
      const GpuModel& m = state.model(g);
      return m.major * 1'000'000 + m.minor * 100'000 + m.multiprocessors;
    };
    return speed(a) > speed(b);
  });
  return order;
}

std::vector<unsigned> visible_devices(State& state, const std::vector<unsigned>& offered) {
  const char* setting = std::getenv("CUDA_VISIBLE_DEVICES");
  if (setting == nullptr) return offered;
  std::vector<unsigned> visible;
  std::string_view rest = setting;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const auto found = find_device(state, offered, trim(rest.substr(0, comma)));
    if (!found || std::find(visible.begin(), visible.end(), *found) != visible.end()) break;
    visible.push_back(*found);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return visible;
}

}  // namespace aliquot::standin
