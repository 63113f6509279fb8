#include "slurm/billing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.hpp"

namespace aliquot::slurm {

namespace {

// In so many parts of one.
GpuBill read_bill(std::string_view weights, std::int64_t parts) {
  GpuBill bill;
  for (const auto part : split(weights, ',')) {
    const auto equals = part.find('=');
    if (equals == part.npos) continue;
    const auto name = part.substr(0, equals);
    const auto weight = parse_decimal(part.substr(equals + 1), parts).value_or(0);
    if (equals_ignoring_case(name, "gres/gpu")) bill.gpu = weight;
    if (equals_ignoring_case(name, "gres/shard")) bill.shard = weight;
  }
  return bill;
}

}  // namespace

GpuBill gpu_bill(std::string_view weights) { return read_bill(weights, 1); }

bool bills_alike(std::string_view weights, std::int64_t shards) {
  constexpr std::int64_t kParts = 1'000'000;  // a shard may be billed as 0.0083
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  const auto bill = read_bill(weights, kParts);
  if (bill.gpu <= 0 || bill.shard <= 0 || bill.gpu > kMost || bill.shard > kMost / shards) {
    return false;
  }
  return std::abs(bill.gpu - shards * bill.shard) <= bill.gpu / 100;
}

std::optional<std::string> with_gpu_weights(std::string_view weights, std::int64_t shards) {
  const auto lower = to_lower(weights);
  if (lower.find("gres/gpu") != std::string::npos || lower.find("gres/shard") != std::string::npos)
    return std::nullopt;
  return fmt::format("{},GRES/gpu={},GRES/shard={}",
                     weights.empty() ? std::string_view("CPU=1.0") : weights, shards * kShardBill,
                     kShardBill);
}

std::int64_t billing_limit(std::int64_t gpus, const GpuBill& bill) {
  return gpus * bill.gpu + std::max<std::int64_t>(bill.shard - 1, 0);
}

}  // namespace aliquot::slurm
