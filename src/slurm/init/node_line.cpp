#include "slurm/init/node_line.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/hostlist.hpp"
#include "base/text.hpp"
#include "slurm/conf_text.hpp"
#include "slurm/plain_name.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::array kHardware = {"CPUs",           "Boards",         "SocketsPerBoard", "Sockets",
                                  "CoresPerSocket", "ThreadsPerCore", "RealMemory"};

tl::unexpected<Error> bad_line(std::string_view from, const ConfLine& line, std::string_view why) {
  return fail(Error::Code::invalid_argument,
              "{}:{}: {}: a line for each node, as 'aliquot slurm init --describe' prints it there",
              from, line.first + 1, why);
}

Result<NodeLine> read_line(const ConfLine& line, std::string_view from) {
  NodeLine node;
  for (const auto& [key, value] : line.words) {
    if (equals_ignoring_case(key, "NodeName")) continue;
    if (equals_ignoring_case(key, "Gpus")) {
      for (const auto part : split_outside_brackets(value)) {
        auto group = parse_gpu_group(part, "here");
        if (!group) return bad_line(from, line, group.error().message);
        group->nodes.clear();
        if (group->files.empty()) group->files = usual_files(group->count);
        node.gpus.push_back(std::move(*group));
      }
      continue;
    }
    const std::string& word = key;  // clang 14 captures no structured binding
    const auto known = std::ranges::find_if(
        kHardware, [&](const char* name) { return equals_ignoring_case(name, word); });
    if (known == kHardware.end()) return bad_line(from, line, quote(key) + " is no word of it");
    const auto number = parse_digits(value);
    if (!number || *number < 1) return bad_line(from, line, key + " is a number");
    if (std::string_view(*known) == "CPUs") node.cpus = *number;
    if (std::string_view(*known) == "RealMemory") node.memory = *number;
    node.hardware += fmt::format("{}{}={}", node.hardware.empty() ? "" : " ", *known, *number);
  }
  if (!line.get("CPUs")) return bad_line(from, line, "it has no CPUs=");
  return node;
}

}  // namespace

Result<std::vector<NodeLine>> parse_node_lines(std::string_view text, std::string_view from) {
  std::vector<NodeLine> nodes;
  const auto lines = lines_of_text(text);
  const auto entries = parse_conf_lines(lines);
  std::set<std::size_t> read;
  for (const ConfLine& line : entries) {
    for (std::size_t i = 0; i < line.count; ++i) read.insert(line.first + i);
    if (!line.is_about("NodeName")) return bad_line(from, line, "it does not begin with NodeName=");
    const auto names = expand_hostlist(*line.get("NodeName"));
    if (!names) return bad_line(from, line, names.error().message);
    NodeLine node = TRY(read_line(line, from));
    for (const std::string& name : *names) {
      if (!is_plain_name(name)) return bad_line(from, line, quote(name) + " is no name of a node");
      if (std::ranges::find(nodes, name, &NodeLine::name) != nodes.end()) {
        return bad_line(from, line, name + " is told twice");
      }
      node.name = name;
      nodes.push_back(node);
    }
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto first = lines[i].find_first_not_of(" \t\r");
    if (first == std::string::npos || lines[i][first] == '#' || read.contains(i)) continue;
    return bad_line(from, {.first = i, .count = 1, .words = {}, .include = {}},
                    quote(lines[i]) + " is no node");
  }
  if (nodes.empty()) {
    return fail(Error::Code::invalid_argument,
                "{} has no nodes: put there what 'aliquot slurm init --describe' prints on each",
                from);
  }
  return nodes;
}

std::string format_node_line(const NodeLine& node) {
  std::vector<std::string> gpus;
  for (const GpuGroup& group : node.gpus) {
    gpus.push_back(
        fmt::format("{}:{}:{}M:{}", group.model, group.count, group.memory / mib(1), group.files));
  }
  return fmt::format("NodeName={} {}{}{}", node.name, node.hardware,
                     gpus.empty() ? "" : " Gpus=", fmt::join(gpus, ","));
}

std::string describe_hardware(const std::vector<CpuPlace>& cpus, std::int64_t memory_mib) {
  std::set<std::string> packages;
  std::set<std::string> cores;
  for (const CpuPlace& cpu : cpus) {
    packages.insert(cpu.package);
    cores.insert(cpu.siblings);
  }
  const auto count = std::max<std::size_t>(cpus.size(), 1);
  std::string text = fmt::format("CPUs={}", count);
  // Cores of two kinds cannot be said in these words: Slurm then goes by the CPUs alone.
  const bool regular =
      !cores.empty() && count % cores.size() == 0 && cores.size() % packages.size() == 0;
  if (regular) {
    text += fmt::format(" Boards=1 SocketsPerBoard={} CoresPerSocket={} ThreadsPerCore={}",
                        packages.size(), cores.size() / packages.size(), count / cores.size());
  }
  const std::int64_t memory = memory_mib - memory_mib / 32;
  if (memory > 0) text += fmt::format(" RealMemory={}", memory);
  return text;
}

}  // namespace aliquot::slurm
