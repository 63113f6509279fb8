// sacctmgr: one command from the command line. Interactive use is not offered.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/text.hpp"
#include "cli/account/book_edit.hpp"
#include "cli/account/book_show.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/help_text.hpp"
#include "cli/query.hpp"

namespace aliquot::cli {
namespace {

// In Slurm's words; a hint says which of them there are.
constexpr std::string_view kShown =
    "\"Account\", \"Association\", \"Cluster\", \"Configuration\",\n"
    "\"Event\", \"Federation\", \"Problem\", \"QOS\", \"Resource\", \"Reservation\",\n"
    "\"RunAwayJobs\", \"Stats\", \"Transaction\", \"TRES\", \"User\", or \"WCKey\"";
constexpr std::string_view kAdded =
    "\"Account\", \"Cluster\", \"Coordinator\", \"Federation\", \"QOS\", \"Resource\", or "
    "\"User\"";

constexpr int kSecondsToDecide = 30;
// Others may change the accounts at the same time.
constexpr int kTries = 5;

bool has_agreed(const OptionSet& options) {
  if (options.has("immediate")) return true;
  print("Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): ");
  std::fflush(stdout);
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  char answer = 'n';
  const bool heard =
      ::poll(&input, 1, kSecondsToDecide * 1'000) > 0 && ::read(STDIN_FILENO, &answer, 1) == 1;
  if (heard && (answer == 'y' || answer == 'Y')) return true;
  print(heard ? "\n Changes Discarded\n" : "timeout\n Changes Discarded\n");
  return false;
}

using Edit = Result<Edited> (*)(api::AccountBook&, Entity, const EditWords&, const std::string&);

struct Editing {
  Edit edit;
  std::string_view doing;  // `adding`
  bool set_first;          // words before `where` and `set` say what shall be
};

int edit_book(const OptionSet& options, const Voice& voice, const Editing& how, Entity entity,
              const std::vector<std::string_view>& words) {
  const auto parsed = parse_edit_words(words, how.set_first);
  const auto failed = [&](const api::ErrorInfo& error) {
    const std::string& said = error.code == "ALIQUOT_BAD_CHANGE" || error.code == "EAGAIN"
                                  ? error.message
                                  : error_text(error);
    voice.error(fmt::format("Problem {} it: {}", how.doing, said));
    return 1;
  };
  auto daemon = DaemonClient::connect();
  if (!daemon) return failed(daemon.error());
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return failed(cluster.error());
  bool agreed = false;
  for (int tries = 1;; ++tries) {
    auto book = daemon->get<api::AccountBook>("/v1/accounts");
    if (!book) return failed(book.error());
    const auto edited = how.edit(*book, entity, parsed, cluster->cluster);
    if (!edited) {
      const std::string& message = edited.error().message;
      const bool unknown = message.starts_with(" Unknown option");  // said on the other stream
      for (const auto line : split(message, '\n')) {
        const bool hint = line.starts_with("sacctmgr: hint:");
        fmt::print(unknown && !hint ? stdout : stderr, "{}\n", make_plain(line));
      }
      return 1;
    }
    if (!agreed && !edited->complaint.empty()) {
      for (const auto line : split(edited->complaint, '\n')) {
        if (!line.empty()) fmt::print(stderr, "{}\n", make_plain(line));
      }
    }
    if (!agreed && !options.has("quiet")) {
      std::string shown;
      for (const auto line : split(edited->text, '\n')) shown += make_plain(line) + "\n";
      shown.pop_back();  // behind the last line there is an empty one
      print(shown);
    }
    if (!edited->changed) return 1;
    if (!agreed && !has_agreed(options)) return 0;
    agreed = true;
    const auto sent = daemon->send("POST", "/v1/accounts", api::to_json(*book));
    if (sent) return 0;
    if (sent.error().code != "EAGAIN" || tries == kTries) return failed(sent.error());
  }
}

int show_entity(const OptionSet& options, const Voice& voice, Entity entity,
                const std::vector<std::string_view>& words) {
  ShowWanted wanted{.entity = entity};
  wanted.with_associations = options.has("associations");
  for (const EditWord& word : parse_edit_words(words, false).where) {
    const auto is = [&](std::string_view name, std::size_t least) {
      return is_command(word.key, name, least);
    };
    std::vector<std::string> list;
    for (const auto one : split(word.value, ',')) list.emplace_back(one);
    if (word.key.empty() && is_command(word.value, "withassoc", 5)) {
      wanted.with_associations = true;
    } else if (word.key.empty() && is_command(word.value, "tree", 4)) {
      wanted.tree = true;
    } else if (is("format", 2)) {
      wanted.format = word.value;
    } else if (is("accounts", 3) ||
               (entity == Entity::account && (word.key.empty() || is("names", 3)))) {
      wanted.accounts = list;
    } else if (is("users", 1) || (entity == Entity::user && (word.key.empty() || is("names", 3)))) {
      wanted.users = list;
    } else if (is("clusters", 2) && entity != Entity::cluster) {
      // There is one; of another one there is nothing to show.
      const auto own = ask<api::ClusterInfo>("/v1/cluster");
      if (own && std::ranges::find(list, own->cluster) == list.end()) return 0;
    } else if (word.key.empty() || is("names", 3) || is("clusters", 2)) {
      wanted.names = list;
    } else {
      fmt::print(stderr, " Unknown condition: {}={}\n Use keyword set to modify value\n",
                 make_plain(word.key), make_plain(word.value));
      return 1;
    }
  }
  auto daemon = DaemonClient::connect();
  const auto failed = [&](const api::ErrorInfo& error) {
    voice.error("Problem with query: " + error_text(error));
    return 1;
  };
  if (!daemon) return failed(daemon.error());
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return failed(cluster.error());
  const auto book = daemon->get<api::AccountBook>("/v1/accounts");
  if (!book) return failed(book.error());
  ShowLayout layout{.header = !options.has("noheader")};
  if (options.has("parsable") || options.has("parsable2")) layout.delimiter = '|';
  layout.trailing = options.has("parsable");
  const auto text = show_book(*book, *cluster, wanted, layout);
  if (!text) {
    fmt::print(stderr, "{}\n", make_plain(text.error().message));
    return 1;
  }
  return print(*text);
}

}  // namespace

int run_sacctmgr(int argc, char** argv) {
  Voice voice("sacctmgr");
  auto call = read_call(SlurmCommand::sacctmgr, argc, argv, voice);
  if (!call) return call.error();
  if (call->words.empty()) return print(help_text(SlurmCommand::sacctmgr));
  const std::string_view command = call->words.front();
  const auto is = [&](std::string_view name, std::size_t least) {
    return is_command(command, name, least);
  };
  if (is("help", 1)) return print(help_text(SlurmCommand::sacctmgr));
  if (is("version", 1)) return print(version_text());
  const bool shows = is("show", 1) || is("list", 1);
  const bool adds = is("add", 2) || is("create", 1);
  const bool modifies = is("modify", 1) || is("update", 1);
  const bool deletes = is("delete", 1) || is("remove", 1);
  if (!shows && !adds && !modifies && !deletes) {
    fmt::print(stderr, "invalid keyword: {}\n", make_plain(command));
    return 1;
  }
  const auto entity =
      call->words.size() > 1 ? parse_entity(call->words[1]) : std::optional<Entity>();
  if (!entity) {
    fmt::print(stderr, "No valid entity in {} command\nInput line must include {}\n",
               adds       ? "add"
               : modifies ? "modify"
               : deletes  ? "delete"
                          : "list",
               shows ? kShown : kAdded);
    voice.info(
        "hint: here these are \"Account\", \"Association\", \"Cluster\", \"QOS\", \"TRES\" and "
        "\"User\"");
    return 1;
  }
  const std::vector<std::string_view> rest(call->words.begin() + 2, call->words.end());
  if (shows) return show_entity(call->options, voice, *entity, rest);
  const Editing how = adds       ? Editing{add_to_book, "adding", true}
                      : modifies ? Editing{modify_book, "modifying", false}
                                 : Editing{delete_from_book, "deleting", false};
  return edit_book(call->options, voice, how, *entity, rest);
}

}  // namespace aliquot::cli
