#include "standin/model/gpu_model.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "standin/state/layout.hpp"

namespace aliquot::standin {
namespace {

constexpr GpuModel kModels[] = {
    {"h200", "NVIDIA H200 (simulated)", 143771 * kMiB, 615 * kMiB + (64 << 10), 526 * kMiB, 9, 0,
     132, 1980, 700, 0x233510DE},
    {"h100", "NVIDIA H100 80GB HBM3 (simulated)", 81559 * kMiB, 527 * kMiB, 518 * kMiB, 9, 0, 132,
     1980, 700, 0x233010DE},
    {"a100", "NVIDIA A100-SXM4-80GB (simulated)", 81920 * kMiB, 669 * kMiB, 424 * kMiB, 8, 0, 108,
     1410, 400, 0x20B210DE},
    {"titanrtx", "NVIDIA TITAN RTX (simulated)", 24576 * kMiB, 357 * kMiB, 160 * kMiB, 7, 5, 72,
     1770, 280, 0x1E0210DE},
    {"t4", "Tesla T4 (simulated)", 15360 * kMiB, 449 * kMiB, 104 * kMiB, 7, 5, 40, 1590, 70,
     0x1EB810DE},
    {"v100", "Tesla V100-SXM2-32GB (simulated)", 32768 * kMiB, 268 * kMiB, 308 * kMiB, 7, 0, 80,
     1530, 300, 0x1DB510DE},
    {"p100", "Tesla P100-PCIE-16GB (simulated)", 16384 * kMiB, 108 * kMiB, 294 * kMiB, 6, 0, 56,
     1328, 250, 0x15F810DE},
};

// A fixed hash, so that UUIDs never change with a compiler or library.
std::uint64_t fnv1a(std::string_view text, std::uint64_t hash) {
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001B3ULL;
  }
  hash = (hash ^ (hash >> 31)) * 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 29);
}

}  // namespace

std::span<const GpuModel> models() { return kModels; }

const GpuModel* find_model(std::string_view key) {
  const auto* found =
      std::find_if(std::begin(kModels), std::end(kModels), [&](auto& m) { return m.key == key; });
  return found == std::end(kModels) ? nullptr : found;
}

const GpuModel& model_at(std::size_t index) {
  return kModels[std::min(index, std::size(kModels) - 1)];
}

std::size_t index_of(const GpuModel& model) {
  return static_cast<std::size_t>(find_model(model.key) - kModels);
}

std::optional<std::vector<const GpuModel*>> parse_machine(std::string_view text, std::string* why) {
  std::vector<const GpuModel*> gpus;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);

    const auto colon = item.find(':');
    const GpuModel* model = find_model(item.substr(0, colon));
    if (model == nullptr) {
      *why = "no GPU model '" + std::string(item.substr(0, colon)) + "'; there are";
      for (const auto& m : kModels) *why += " " + std::string(m.key);
      return std::nullopt;
    }
    unsigned count = 1;
    if (colon != std::string_view::npos) {
      const auto digits = item.substr(colon + 1);
      const auto [end, error] = std::from_chars(digits.begin(), digits.end(), count);
      if (error != std::errc{} || end != digits.end() || count > kMaxGpus) {
        *why = "'" + std::string(digits) + "' is not a number of GPUs from 0 to 16";
        return std::nullopt;
      }
    }
    gpus.insert(gpus.end(), count, model);
  }
  if (gpus.size() > kMaxGpus) {
    *why = "more than 16 GPUs";
    return std::nullopt;
  }
  return gpus;
}

std::array<unsigned char, 16> uuid_bytes(const GpuModel& model, unsigned index) {
  const std::string seed = "aliquot/" + std::string(model.key) + "/" + std::to_string(index);
  const std::uint64_t halves[] = {fnv1a(seed, 0xCBF29CE484222325ULL),
                                  fnv1a(seed, 0x84222325CBF29CE4ULL)};
  std::array<unsigned char, 16> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(halves[i / 8] >> (8 * (i % 8)));
  return bytes;
}

std::string uuid_text(const std::array<unsigned char, 16>& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

}  // namespace aliquot::standin
