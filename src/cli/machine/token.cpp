// `aliquot token`: the right to act as you on the page, in a text.
#include <string>

#include "api/json.hpp"
#include "base/slurm_time.hpp"
#include "base/timestamp.hpp"
#include "cli/console.hpp"
#include "cli/daemon_client.hpp"
#include "cli/engine_choice.hpp"
#include "cli/own_command.hpp"
#include "cli/view/engine_query.hpp"

namespace aliquot::cli {
namespace {

struct TokenOptions {
  std::string length = "8:00:00";
  bool revoke = false;
  bool json = false;
};

int make_token(const TokenOptions& options) {
  constexpr std::string_view kReadOnly = "the page of a cluster is to be read alone";
  if (const auto status =
          refused_on_cluster("token", {.slurm = kReadOnly, .kubernetes = kReadOnly})) {
    return *status;
  }
  auto daemon = DaemonClient::connect();
  if (!daemon) return refused(daemon.error());
  if (options.revoke) {
    const auto done = daemon->send("POST", "/v1/token/revoke");
    if (!done) return refused(done.error());
    return print(options.json ? "{}\n" : "your tokens are none any more\n");
  }
  const auto length = parse_time_limit(options.length);
  if (!length) return misused(length.error());
  if (length->unlimited()) {
    complain("a token ends: say for how long, as 8:00:00 or 7-0");
    return kMisused;
  }
  const api::TokenSpec spec{.for_s = *length->length / seconds(1)};
  const auto made = daemon->post<api::TokenInfo>("/v1/token", api::to_json(spec));
  if (!made) return refused(made.error());
  if (options.json) return print(api::to_json(*made) + "\n");
  if (made->address.empty()) {
    return print(
        fmt::format("{}\nNo page is served: page.port in the settings has it so. The token "
                    "is good until {}.\n",
                    made->token, format_timestamp(WallTime(made->expires_ms))));
  }
  return print(fmt::format("{}#{}\n", made->address, made->token));
}

}  // namespace

void add_token(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, make_token);
  command.add_option("--for", options.length, "How long it is good, as in --time")
      ->capture_default_str();
  command.add_flag("--revoke", options.revoke, "Make all of yours worthless");
  command.add_flag("--json", options.json, kJsonAbout);
}

}  // namespace aliquot::cli
