// sshare: who has had how much, and how that counts.
#include <unistd.h>

#include <algorithm>

#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/query.hpp"
#include "cli/users.hpp"
#include "cli/view/sshare_text.hpp"

namespace aliquot::cli {
namespace {

SshareView sshare_view(const OptionSet& options) {
  SshareView view;
  if (options.has("long")) view.format = kSshareLong;
  if (const auto format = options.text("format"); !format.empty()) view.format = format;
  view.header = !options.has("noheader");
  view.users_only = options.has("Users");
  const auto* between = options.find("parsable2");
  const auto* after = options.find("parsable");
  if (between != nullptr || after != nullptr) {
    view.delimiter = "|";
    view.trailing = after != nullptr && (between == nullptr || after->place > between->place);
  }
  return view;
}

}  // namespace

int run_sshare(int argc, char** argv) {
  constexpr std::string_view kPrefix = "sshare: error";
  Voice voice("sshare");
  const auto call = read_call(SlurmCommand::sshare, argc, argv, voice);
  if (!call) return call.error();
  const OptionSet& options = call->options;
  if (options.has("helpformat")) return print(list_sshare_fields());
  if (!call->words.empty()) {
    voice.error(fmt::format("Unrecognized option: {}", call->words.front()));
    return try_help("sshare");
  }
  // As in Slurm: oneself, unless others are asked for.
  std::vector<std::uint32_t> uids;
  if (options.has("users")) {
    // Whom nobody knows has no share, as in Slurm.
    for (const auto& name : options.words("users")) {
      uids.push_back(find_user(name).value_or(Uid(UINT32_MAX)).value());
    }
  } else if (!options.has("all")) {
    uids.push_back(::getuid());
  }
  auto daemon = open_daemon(options, voice, kPrefix);
  if (!daemon) return daemon.error();
  const auto list = daemon->get<api::ShareList>("/v1/shares");
  if (!list) return load_failed(kPrefix, list.error());
  const auto accounts = options.words("accounts");
  std::vector<const api::ShareInfo*> shown;
  for (const api::ShareInfo& one : list->users) {
    const auto left_out = [](const auto& wanted, const auto& value) {
      return !wanted.empty() && std::ranges::find(wanted, value) == wanted.end();
    };
    if (!left_out(uids, one.uid) && !left_out(accounts, one.account)) shown.push_back(&one);
  }
  const auto text = format_sshare(*list, shown, sshare_view(options));
  if (!text) {
    voice.error(text.error().message);
    return 1;
  }
  return print(*text);
}

}  // namespace aliquot::cli
