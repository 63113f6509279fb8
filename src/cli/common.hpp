// What every command that talks to the daemon needs: finding and calling it, and saying what went
// wrong in Slurm's words. Each command still decides where a message goes and how it exits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "api/json.hpp"
#include "api/types.hpp"
#include "base/ids.hpp"
#include "net/client.hpp"

namespace aliquot::cli {

// The daemon's refusal. Failing to reach it is one as well: kUnreachable.
template <class T>
using Answer = tl::expected<T, api::ErrorInfo>;
inline constexpr std::string_view kUnreachable = "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR";

// Nothing was said about what was asked: the daemon is away, or cannot answer now.
bool is_passing(const api::ErrorInfo& error);

// The text Slurm has for the error, e.g. `Invalid job id specified`; the daemon's own where it has
// none.
std::string error_text(const api::ErrorInfo& error);
// Slurm's number for it (2002: access denied); 1 where it has none. As an exit status modulo 256.
int error_number(std::string_view code);

// Where a daemon may listen, in the order to try: $ALIQUOT_SOCKET alone if it is set; else the
// user's own, where the folder is really the user's; else the machine's.
std::vector<std::string> socket_candidates();

class Daemon {
 public:
  static Answer<Daemon> connect();

  // The body of an answer 2xx.
  Answer<std::string> send(std::string_view method, std::string_view target,
                           std::string_view body = {});

  // What is read is for people's eyes: no text in it steers a terminal.
  template <class T>
  Answer<T> get(std::string_view target) {
    auto value = get_as_is<T>(target);
    if (value) api::make_plain(*value);
    return value;
  }
  // With names of files that can be opened.
  template <class T>
  Answer<T> get_as_is(std::string_view target) {
    return decoded<T>(send("GET", target));
  }
  // A list of jobs, which may come in pages.
  Answer<api::JobList> list(std::string_view target, bool as_is = false);
  template <class T>
  Answer<T> post(std::string_view target, std::string_view body) {
    return decoded<T>(send("POST", target, body));
  }

  // The socket, to poll for the daemon's going away.
  [[nodiscard]] int descriptor() const { return client_.descriptor(); }

 private:
  explicit Daemon(net::Client client) : client_(std::move(client)) {}

  template <class T>
  static Answer<T> decoded(const Answer<std::string>& body) {
    if (!body) return tl::make_unexpected(body.error());
    auto value = api::from_json<T>(*body);
    if (!value) return tl::make_unexpected(api::ErrorInfo{"", value.error().message});
    return std::move(*value);
  }

  net::Client client_;
};

// The user database: a name or a number to a uid, and back (the number as text where it has no
// name).
std::optional<Uid> find_user(std::string_view name_or_number);
std::string user_name(Uid uid);

// A Slurm-named command's voice on stderr: `sbatch: error: …`, a line for each line of the text.
class Voice {
 public:
  explicit Voice(std::string name) : name_(std::move(name)) {}

  void error(std::string_view text) const;  // also with --quiet
  void fatal(std::string_view text) const;
  void info(std::string_view text) const;     // not with --quiet
  void verbose(std::string_view text) const;  // with -v

  void set_level(int level) { level_ = level; }  // -1: quiet; 0; 1: -v; 2: -vv; …
  [[nodiscard]] int level() const { return level_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  void say(std::string_view kind, std::string_view text) const;

  std::string name_;
  int level_ = 0;
};

}  // namespace aliquot::cli
