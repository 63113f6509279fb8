#include "sim/expected.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.hpp"
#include "sim/csv.hpp"
#include "sim/names.hpp"

namespace aliquot::sim {
namespace {

constexpr std::array<std::int64_t, 6> kPoints = {90, 95, 100, 110, 120, 130};

// `02-DotProd` → `dot-product`.
std::string our_name(std::string_view published) {
  while (!published.empty() && (std::isdigit(static_cast<unsigned char>(published.front())) != 0 ||
                                published.front() == '-')) {
    published.remove_prefix(1);
  }
  struct Pair {
    std::string_view published;
    std::string_view ours;
  };
  constexpr std::array<Pair, 4> kNames = {{{"DotProd", "dot-product"},
                                           {"GpuClustering", "gpu-clustering"},
                                           {"GpuPacking", "gpu-packing"},
                                           {"BestFit", "best-fit"}}};
  for (const auto& name : kNames) {
    if (equals_ignoring_case(name.published, published)) return std::string(name.ours);
  }
  return to_lower(published);
}

}  // namespace

Result<std::vector<Expected>> parse_expected(std::string_view text, std::string_view name) {
  CsvReader reader = TRY(CsvReader::open(text, name));
  const auto [workload, policy, seeds] = TRY(reader.columns("workload", "policy", "seeds"));

  std::vector<Expected> all;
  while (TRY(reader.next())) {
    Expected row{.workload = reader.field(workload), .policy = our_name(reader.field(policy))};
    row.seeds = TRY(reader.whole_number(seeds, 1, 1'000'000));
    for (const auto arrived : kPoints) {
      const auto allocated = reader.find_column(fmt::format("alloc_{}", arrived));
      if (!allocated || reader.field(*allocated).empty()) continue;
      ExpectedPoint point{.arrived = arrived, .allocated = TRY(reader.decimal(*allocated))};
      const auto deviation = reader.find_column(fmt::format("alloc_sd_{}", arrived));
      if (deviation && !reader.field(*deviation).empty()) {
        point.deviation = TRY(reader.decimal(*deviation));
      }
      row.points.push_back(point);
    }
    all.push_back(std::move(row));
  }
  if (all.empty()) return fail(Error::Code::invalid_argument, "{}: no results in it", name);
  return all;
}

Result<std::vector<Expected>> expected_of(const std::vector<Expected>& all,
                                          std::string_view workload) {
  std::vector<Expected> rows;
  std::vector<std::string> known;
  for (const auto& row : all) {
    if (row.workload == workload) rows.push_back(row);
    if (std::find(known.begin(), known.end(), row.workload) == known.end()) {
      known.push_back(row.workload);
    }
  }
  if (rows.empty()) {
    auto error = unknown_name("published workload", workload, known);
    error.message += " (say which with --workload)";
    return tl::make_unexpected(std::move(error));
  }
  return rows;
}

std::string workload_name(std::string_view pods_file) {
  if (const auto slash = pods_file.rfind('/'); slash != pods_file.npos) {
    pods_file.remove_prefix(slash + 1);
  }
  pods_file = pods_file.substr(0, pods_file.find('.'));
  if (const auto mark = pods_file.rfind('_'); mark != pods_file.npos) {
    pods_file.remove_prefix(mark + 1);
  }
  return std::string(pods_file);
}

}  // namespace aliquot::sim
