// sreport: from its words to the report that is asked for.
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/help_text.hpp"
#include "cli/moment.hpp"
#include "cli/query.hpp"
#include "cli/users.hpp"
#include "cli/view/sreport_text.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kSreportPrefix = "sreport: error: Problem talking to the database";

using ReportWords = std::vector<std::string_view>;

void put_error(std::string_view text) {
  std::fflush(stdout);
  for (const auto line : split(text, '\n')) fmt::print(stderr, "{}\n", make_plain(line));
}

// The kind, by the first two words; else Slurm's message was printed.
std::optional<ReportKind> report_kind(const ReportWords& words, const Voice& voice) {
  const std::string_view type = words[0];
  const auto is = [](std::string_view word, std::string_view name, std::size_t least) {
    return is_command(word, name, least);
  };
  const bool cluster = is(type, "cluster", 1);
  const bool user = is(type, "user", 1);
  const bool job = is(type, "job", 1);
  const bool reservation = is(type, "reservation", 1);
  if (!cluster && !user && !job && !reservation) {
    put_error(fmt::format("invalid keyword: {}", type));
    return std::nullopt;
  }
  if (words.size() < 2) {
    put_error(fmt::format("too few arguments for keyword:{}", type));
    return std::nullopt;
  }
  const std::string_view report = words[1];
  if (cluster && is(report, "AccountUtilizationByUser", 1)) return ReportKind::accounts_by_user;
  if (cluster && is(report, "UserUtilizationByAccount", 18)) return ReportKind::users_by_account;
  if (cluster && is(report, "Utilization", 2)) return ReportKind::utilization;
  if (user && is(report, "TopUsage", 1)) return ReportKind::top;
  if (cluster &&
      (is(report, "UserUtilizationByWckey", 18) || is(report, "WCKeyUtilizationByUser", 1))) {
    voice.error("this engine counts by account and user, not by wckey");
    return std::nullopt;
  }
  if (job && is(report, "SizesByAccountAndWckey", 5)) {
    voice.error("this engine makes no reports of job sizes: sacct -X -P lists the jobs");
    return std::nullopt;
  }
  if (reservation && is(report, "Utilization", 1)) {
    voice.error("this engine keeps no reservations that are over: scontrol show reservation");
    return std::nullopt;
  }
  put_error(fmt::format(
      "Not valid report {}\nValid {} reports are, {}", report,
      cluster       ? "cluster"
      : user        ? "user"
      : reservation ? "reservation"
                    : "job",
      cluster       ? "\"AccountUtilizationByUser\", \"UserUtilizationByAccount\", "
                      "\"UserUtilizationByWckey\", \"Utilization\", and \"WCKeyUtilizationByUser\""
      : user        ? "\"Top\""
      : reservation ? "\"Utilization\""
                    : "\"SizesByAccount, SizesByAccountAndWcKey, and  SizesByWckey\""));
  return std::nullopt;
}

struct Conditions {
  ReportQuery query;
  std::vector<std::string> clusters = {};
  std::optional<WallTime> start = {};
  std::optional<WallTime> end = {};
  int status = 0;  // 1: some of it made no sense, and was said; the report is made all the same
};

std::vector<std::string> to_list(std::string_view text) {
  std::vector<std::string> list;
  for (const auto one : split(text, ',')) {
    if (!one.empty()) list.emplace_back(one);
  }
  return list;
}

void read_condition(std::string_view word, Conditions& conditions, const Voice& voice) {
  ReportQuery& query = conditions.query;
  const auto equals = word.find('=');
  const auto key = word.substr(0, equals);
  const auto value = equals == word.npos ? std::string_view() : word.substr(equals + 1);
  const auto is = [&](std::string_view name, std::size_t least) {
    return is_command(key, name, least);
  };
  const auto time = [&](std::optional<WallTime>& to) {
    const auto moment = parse_moment(value, wall_now(), Tense::past);
    if (moment) {
      to = *moment;
    } else {
      put_error(moment.error().message);
    }
  };
  const bool has_value = equals != word.npos;
  if (!has_value && is("all_clusters", 1)) return;
  if (!has_value && is("tree", 4) && query.kind == ReportKind::accounts_by_user) {
    query.tree = true;
  } else if (!has_value && is("group", 1) && query.kind == ReportKind::top) {
    query.group = true;
  } else if (has_value && is("accounts", 1)) {
    query.accounts = to_list(value);
  } else if (has_value && is("clusters", 1)) {
    conditions.clusters = to_list(value);
  } else if (has_value && is("end", 1)) {
    time(conditions.end);
  } else if (has_value && is("format", 1)) {
    query.format = value;
  } else if (has_value && is("start", 1)) {
    time(conditions.start);
  } else if (has_value && is("topcount", 4) && query.kind == ReportKind::top) {
    const auto count = parse_digits(value);
    if (count && *count > 0 && *count <= INT32_MAX) {
      query.top = static_cast<std::size_t>(*count);
    } else {
      voice.error(fmt::format("Invalid value for TopCount ({})", value));
      conditions.status = 1;
    }
  } else if (has_value && is("users", 1)) {
    query.users = to_list(value);
  } else {
    put_error(fmt::format(" Unknown condition: {}\nUse keyword set to modify value", word));
    conditions.status = 1;
  }
}

// What a user is called, from the user database.
std::string proper_name(const std::string& user) {
  const passwd* const known = ::getpwnam(user.c_str());
  if (known == nullptr || known->pw_gecos == nullptr) return "";
  const std::string_view gecos = known->pw_gecos;
  return make_plain(gecos.substr(0, gecos.find(',')));
}

int make_report(const OptionSet& options, const ReportWords& words, const Voice& voice) {
  const auto kind = report_kind(words, voice);
  if (!kind) return 1;
  Conditions conditions;
  ReportQuery& query = conditions.query;
  query.kind = *kind;
  query.header = !options.has("noheader");
  if (options.has("parsable") || options.has("parsable2")) query.delimiter = "|";
  query.trailing = options.has("parsable");
  if (options.has("-t") && !parse_report_time(options.text("-t"), query)) {
    put_error(fmt::format("unknown time format {}", options.text("-t")));
  }
  if (const auto tres = options.maybe("tres")) {
    query.tres_given = true;
    query.tres = parse_report_tres(*tres);
    if (query.tres.empty()) {
      voice.fatal("No valid TRES given");
      return 1;
    }
    const auto node = std::ranges::find(query.tres, ReportTres::node);
    if (query.kind == ReportKind::utilization && node != query.tres.end()) {
      if (!equals_ignoring_case(*tres, "all")) {
        voice.fatal(
            "TRES node usage is no longer reported in the Cluster Utilization report.  Please use "
            "TRES CPU instead.");
        return 1;
      }
      query.tres.erase(node);
    }
  }
  for (std::size_t i = 2; i < words.size(); ++i) read_condition(words[i], conditions, voice);

  auto daemon = open_daemon(options, voice, kSreportPrefix);
  if (!daemon) return daemon.error();
  ReportFacts facts;
  facts.now = wall_now();
  const auto period = report_period(conditions.start, conditions.end, facts.now);
  query.start = period.start;
  query.end = period.end;
  auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return load_failed(kSreportPrefix, cluster.error());
  facts.cluster = std::move(*cluster);
  query.here =
      conditions.clusters.empty() ||
      std::ranges::find(conditions.clusters, facts.cluster.cluster) != conditions.clusters.end();
  auto book = daemon->get<api::AccountBook>("/v1/accounts");
  if (!book) return load_failed(kSreportPrefix, book.error());
  facts.book = std::move(*book);
  auto jobs = daemon->list(
      fmt::format("/v1/accounting?duplicates=1&start={}&end={}", query.start.ms(), query.end.ms()));
  if (!jobs) return load_failed(kSreportPrefix, jobs.error());
  facts.jobs = std::move(jobs->jobs);
  std::map<std::string, std::string> names;
  facts.proper_name = [&](const std::string& user) {
    const auto [known, first] = names.try_emplace(user);
    if (first) known->second = proper_name(user);
    return known->second;
  };
  const auto text = format_report(query, facts);
  for (const auto& complaint : text.complaints) put_error(complaint);
  const int status = print(text.out);
  return status == 0 && (conditions.status != 0 || !text.complaints.empty()) ? 1 : status;
}

// One line of words; nothing: it was the last one.
std::optional<int> run_line(const OptionSet& options, const ReportWords& words,
                            const Voice& voice) {
  if (is_command(words[0], "exit", 1) || is_command(words[0], "quit", 4)) return std::nullopt;
  if (is_command(words[0], "help", 1)) return print(help_text(SlurmCommand::sreport));
  if (is_command(words[0], "version", 4)) return print(version_text());
  return make_report(options, words, voice);
}

int read_lines(const OptionSet& options, const Voice& voice) {
  int status = 0;
  std::string line;
  const auto prompt = [] { return print("sreport: ") == 0 && std::fflush(stdout) == 0; };
  while (prompt() && std::getline(std::cin, line)) {
    ReportWords words;
    for (const auto word : split(line, ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    if (words.empty()) continue;
    const auto done = run_line(options, words, voice);
    if (!done) break;
    status = std::max(status, *done);
  }
  return status;
}

}  // namespace

int run_sreport(int argc, char** argv) {
  Voice voice("sreport");
  const auto call = read_call(SlurmCommand::sreport, argc, argv, voice);
  if (!call) return call.error();
  if (call->words.empty()) return read_lines(call->options, voice);
  return run_line(call->options, call->words, voice).value_or(0);
}

}  // namespace aliquot::cli
