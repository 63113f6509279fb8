#include "sim/report.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/number_ranges.hpp"
#include "base/table.hpp"

namespace aliquot::sim {
namespace {

std::string factor(Compute limit) {
  return fmt::format("{:g}",
                     static_cast<double>(limit.value()) / static_cast<double>(kWholeGpu.value()));
}

std::string format_rate(double rate) {
  return rate >= 1000 ? fmt::format("{:.1f}k", rate / 1000) : fmt::format("{:.0f}", rate);
}

// Published and ours, where both know the point.
struct Comparison {
  std::string policy;
  std::int64_t arrived = 0;
  double published = 0;
  double ours = 0;
  std::optional<double> standard_error;  // of the published mean
  [[nodiscard]] double difference() const { return ours - published; }
};

std::vector<Comparison> compare(const Report& report) {
  std::vector<Comparison> all;
  for (const auto& policy : report.outcome.policies) {
    for (const auto& expected : report.expected) {
      if (expected.policy != policy.policy) continue;
      for (const auto& theirs : expected.points) {
        for (const auto& ours : policy.points) {
          if (ours.arrived != theirs.arrived) continue;
          Comparison line{policy.policy, ours.arrived, theirs.allocated, ours.mean, std::nullopt};
          if (theirs.deviation) {
            line.standard_error =
                *theirs.deviation / std::sqrt(static_cast<double>(expected.seeds));
          }
          all.push_back(std::move(line));
        }
      }
    }
  }
  return all;
}

std::size_t policy_width(const Report& report) {
  std::size_t width = 6;
  for (const auto& policy : report.outcome.policies) width = std::max(width, policy.policy.size());
  return width;
}

std::string format_heading(const Report& report) {
  const auto& plan = report.plan;
  auto text = fmt::format("nodes {} ({} nodes, {} GPUs), pods {} ({} pods of {} kinds)\n",
                          report.workload.nodes_name, report.workload.nodes.size(),
                          report.workload.gpus, report.workload.pods_name,
                          report.workload.pods.size(), report.workload.kinds.size());
  text += fmt::format("seeds {}", format_ranges(plan.seeds));
  if (plan.draw == Draw::published) text += ", orders as published";
  if (report.compute_limit != kWholeGpu) {
    text += fmt::format(", compute over-committed {} times", factor(report.compute_limit));
  }
  if (report.scale != 1) text += fmt::format(", {} copies of the cluster", report.scale);
  return text + "\n\n";
}

std::string format_allocations(const Report& report) {
  std::vector<Column> columns = {{"POLICY", policy_width(report)}};
  for (const auto& point : report.outcome.policies.front().points) {
    columns.push_back({fmt::format("{}%", point.arrived), 11, Align::right});
  }
  columns.push_back({"PLACED", 9, Align::right});
  columns.push_back({"REFUSED", 9, Align::right});
  columns.push_back({"DECISIONS/S", 11, Align::right, ""});
  std::vector<Row> rows;
  for (const auto& policy : report.outcome.policies) {
    Row row = {policy.policy};
    for (const auto& point : policy.points) {
      row.push_back(report.plan.seeds.size() > 1
                        ? fmt::format("{:.2f} ±{:.2f}", point.mean, point.deviation)
                        : fmt::format("{:.2f}", point.mean));
    }
    row.push_back(fmt::format("{}", policy.placed));
    row.push_back(fmt::format("{}", policy.decisions - policy.placed));
    row.push_back(format_rate(policy.decisions_per_second()));
    rows.push_back(std::move(row));
  }
  return "GPUs allocated in percent, when so many percent have been asked for:\n" +
         render_table(columns, rows);
}

std::string format_comparison(const Report& report) {
  const auto lines = compare(report);
  if (lines.empty()) return "\nNothing is published for these policies.\n";
  const std::vector<Column> columns = {
      {"POLICY", policy_width(report)}, {"ARRIVED", 7, Align::right},
      {"PUBLISHED", 9, Align::right},   {"OURS", 9, Align::right},
      {"DIFFERENCE", 10, Align::right}, {"STD.ERROR", 9, Align::right, ""}};
  std::vector<Row> rows;
  for (const auto& line : lines) {
    rows.push_back({line.policy, fmt::format("{}%", line.arrived),
                    fmt::format("{:.2f}", line.published), fmt::format("{:.2f}", line.ours),
                    fmt::format("{:+.2f}", line.difference()),
                    line.standard_error ? fmt::format("{:.3f}", *line.standard_error) : "-"});
  }
  return "\nAgainst the published results:\n" + render_table(columns, rows);
}

// Commas between the parts of an object or list.
class Joiner {
 public:
  explicit Joiner(std::string& text) : text_(text) {}
  std::string& next() {
    if (!first_) text_ += ", ";
    first_ = false;
    return text_;
  }

 private:
  std::string& text_;
  bool first_ = true;
};

std::string policy_json(const Report& report, const PolicySummary& policy) {
  std::string text = fmt::format(
      "{{\"policy\": {}, \"decisions\": {}, \"placed\": {}, \"refused\": {}, "
      "\"cpu_seconds\": {:.6f}, \"decisions_per_second\": {:.1f}, \"allocation\": [",
      json_string(policy.policy), policy.decisions, policy.placed, policy.decisions - policy.placed,
      static_cast<double>(policy.cpu_ns) / 1e9, policy.decisions_per_second());
  Joiner points(text);
  for (std::size_t i = 0; i < policy.points.size(); ++i) {
    const auto& point = policy.points[i];
    fmt::format_to(std::back_inserter(points.next()),
                   "{{\"arrived\": {}, \"mean\": {:.4f}, \"deviation\": {:.4f}, \"seeds\": {{",
                   point.arrived, point.mean, point.deviation);
    Joiner seeds(text);
    for (std::size_t seed = 0; seed < policy.replays.size(); ++seed) {
      fmt::format_to(std::back_inserter(seeds.next()), "\"{}\": {:.4f}", report.plan.seeds[seed],
                     policy.replays[seed].points[i].allocated);
    }
    text += "}}";
  }
  return text + "]}";
}

std::string comparison_json(const Comparison& line) {
  return fmt::format(
      "{{\"policy\": {}, \"arrived\": {}, \"published\": {:.4f}, \"ours\": {:.4f}, "
      "\"difference\": {:.4f}, \"standard_error\": {}}}",
      json_string(line.policy), line.arrived, line.published, line.ours, line.difference(),
      line.standard_error ? fmt::format("{:.4f}", *line.standard_error) : "null");
}

// The length of the UTF-8 character that `text` starts with, or 0.
std::size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xc2 && lead < 0xe0 ? 2
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string format_text(const Report& report) {
  std::string text = format_heading(report) + format_allocations(report);
  if (!report.expected.empty()) text += format_comparison(report);
  text += fmt::format("\npeak memory {:.0f} MiB\n",
                      static_cast<double>(report.outcome.peak_memory_bytes) / (1024.0 * 1024.0));
  return text;
}

std::string format_json(const Report& report) {
  const auto& workload = report.workload;
  std::string text = fmt::format(
      "{{\"nodes\": {{\"name\": {}, \"nodes\": {}, \"gpus\": {}}}, "
      "\"pods\": {{\"name\": {}, \"pods\": {}, \"kinds\": {}}}, "
      "\"seeds\": [{}], \"order\": \"{}\", \"arrived\": {}, \"overcommit\": {}, \"scale\": {}, "
      "\"jobs\": {}, "
      "\"peak_memory_bytes\": {}, \"policies\": [",
      json_string(workload.nodes_name), workload.nodes.size(), workload.gpus,
      json_string(workload.pods_name), workload.pods.size(), workload.kinds.size(),
      fmt::join(report.plan.seeds, ", "), to_string(report.plan.draw), report.plan.arrived,
      factor(report.compute_limit), report.scale, report.plan.jobs,
      report.outcome.peak_memory_bytes);
  Joiner policies(text);
  for (const auto& policy : report.outcome.policies) policies.next() += policy_json(report, policy);
  text += "]";
  if (!report.expected.empty()) {
    text += ", \"published\": [";
    Joiner lines(text);
    for (const auto& line : compare(report)) lines.next() += comparison_json(line);
    text += "]";
  }
  return text + "}\n";
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return out + '"';
}

}  // namespace aliquot::sim
