#include "slurm/endpoint.hpp"

#include <filesystem>

#include "base/text.hpp"
#include "node/file.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFetchedConf = "/run/slurm/conf/slurm.conf";

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\"");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\"") - first + 1);
}

// `ctl1(10.0.0.1)` -> `10.0.0.1`
std::string address_of(std::string_view host) {
  const auto open = host.find('(');
  if (open == host.npos) return std::string(host);
  return std::string(host.substr(open + 1, host.find(')', open) - open - 1));
}

// A line without its comment; a backslash at the end goes on with the next.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  bool goes_on = false;
  for (auto line : split(text, '\n')) {
    line = line.substr(0, line.find('#'));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    const bool more = line.ends_with('\\');
    if (more) line.remove_suffix(1);
    if (goes_on) {
      lines.back() += line;
    } else {
      lines.emplace_back(line);
    }
    goes_on = more;
  }
  return lines;
}

// The text with the included files in place.
Result<std::string> read_with_includes(const fs::path& path, int depth) {
  const std::string text = TRY(node::read_whole(fs::weakly_canonical(path)));
  std::string out;
  for (const auto& line : lines_of(text)) {
    const auto words = trim(line);
    constexpr std::string_view kInclude = "include";
    if (depth > 0 && words.size() > kInclude.size() &&
        equals_ignoring_case(words.substr(0, kInclude.size()), kInclude) &&
        (words[kInclude.size()] == ' ' || words[kInclude.size()] == '\t')) {
      const fs::path named(trim(words.substr(kInclude.size())));
      // One that cannot be read is Slurm's to complain of.
      if (auto inner = read_with_includes(path.parent_path() / named, depth - 1)) out += *inner;
    } else {
      out += line + "\n";
    }
  }
  return out;
}

}  // namespace

ConfExcerpt read_conf(std::string_view text) {
  ConfExcerpt conf;
  std::string machine;
  std::string machine_address;
  for (const auto& line : lines_of(text)) {
    const auto equals = line.find('=');
    if (equals == std::string::npos) continue;
    const auto key = to_lower(trim(std::string_view(line).substr(0, equals)));
    const auto value = trim(std::string_view(line).substr(equals + 1));
    if (key == "slurmctldhost") conf.controllers.push_back(address_of(value));
    if (key == "controlmachine") machine = value;
    if (key == "controladdr") machine_address = value;
    if (key != "authinfo") continue;
    for (const auto part : split(value, ',')) {
      constexpr std::string_view kSocket = "socket=";
      if (trim(part).starts_with(kSocket)) conf.munge_socket = trim(part).substr(kSocket.size());
    }
  }
  if (conf.controllers.empty() && !machine.empty()) {
    conf.controllers.push_back(machine_address.empty() ? machine : machine_address);
  }
  return conf;
}

Result<SampleEndpoint> find_endpoint(const Settings& settings) {
  const std::string path = slurm_conf_path(settings);
  auto text = read_with_includes(path, 8);
  if (!text) text = read_with_includes(kFetchedConf, 8);
  if (!text) {
    return fail(Error::Code::not_found, "cannot read {}: set SLURM_CONF or [slurm] conf",
                quote(path));
  }
  ConfExcerpt conf = read_conf(*text);
  SampleEndpoint endpoint{
      {}, static_cast<std::uint16_t>(settings.balancer.port), std::move(conf.munge_socket)};
  if (!settings.balancer.host.empty()) {
    endpoint.hosts = {settings.balancer.host};
  } else {
    endpoint.hosts = std::move(conf.controllers);
  }
  if (endpoint.hosts.empty()) {
    return fail(Error::Code::not_found, "{} names no SlurmctldHost: set [balancer] host",
                quote(path));
  }
  return endpoint;
}

}  // namespace aliquot::slurm
