#include "cli/view/sreport_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <set>

#include "base/format_spec.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {
namespace {

constexpr std::size_t kTresKinds = 6;
using Held = std::array<double, kTresKinds>;  // seconds of each

constexpr std::array<std::string_view, kTresKinds> kTresNames = {"cpu",  "mem",     "energy",
                                                                 "node", "billing", "gres/gpu"};

std::size_t place(ReportTres tres) { return static_cast<std::size_t>(tres); }
std::string_view tres_name(ReportTres tres) { return kTresNames.at(place(tres)); }

void add(Held& to, const Held& more, double seconds) {
  for (std::size_t i = 0; i < kTresKinds; ++i) to.at(i) += more.at(i) * seconds;
}

// A share counts as the larger of its parts of memory and compute.
double gpus_of(const api::JobInfo& job, const api::NodeInfo& node) {
  double sum = 0;
  for (const api::GpuHold& held : job.gpus) {
    if (held.whole) {
      sum += 1;
      continue;
    }
    double part = static_cast<double>(held.compute) / 10'000;
    for (const api::GpuInfo& gpu : node.gpus) {
      if (gpu.uuid != held.uuid || gpu.memory <= 0) continue;
      part = std::max(part, static_cast<double>(held.memory) / static_cast<double>(gpu.memory));
    }
    sum += part;
  }
  return sum;
}

constexpr double kMebi = 1'048'576;

Held amounts(const api::JobInfo& job, const api::NodeInfo& node) {
  const auto cpus = static_cast<double>(job.cpus);
  return {cpus, static_cast<double>(job.memory) / kMebi, 0, 1, cpus, gpus_of(job, node)};
}

Held capacity(const api::NodeInfo& node) {
  const auto cpus = static_cast<double>(node.cpus);
  return {cpus, static_cast<double>(node.memory) / kMebi, 0, 1,
          cpus, static_cast<double>(node.gpus.size())};
}

struct Span {
  std::int64_t from = 0;  // milliseconds
  std::int64_t to = 0;
  [[nodiscard]] double seconds() const {
    return to > from ? static_cast<double>(to - from) / 1e3 : 0;
  }
};
Span within(Span span, const Span& all) {
  return {std::max(span.from, all.from), std::min(span.to, all.to)};
}

Span period_of(const ReportQuery& query, const ReportFacts& facts) {
  return {query.start.ms(), std::min(query.end, facts.now).ms()};
}
Span running_span(const api::JobInfo& job, WallTime now) {
  if (!has_started(job)) return {};
  const auto end = is_finished(job) ? job.end_ms.value_or(*job.start_ms) : now.ms();
  return {*job.start_ms, end};
}
Span waiting_span(const api::JobInfo& job, WallTime now) {
  const auto until = has_started(job)   ? *job.start_ms
                     : is_finished(job) ? job.end_ms.value_or(job.eligible_ms)
                                        : now.ms();
  return {job.eligible_ms, until};
}

std::string account_of(const api::JobInfo& job) {
  return job.account.empty() ? job.user : job.account;
}

// --- what a row can show

struct ReportRow {
  std::string account = {};
  std::string login = {};
  int depth = 0;  // in the tree of accounts
  Held used = {};
  // Of the machine.
  Held down = {};
  Held idle = {};
  Held planned = {};
  Held over = {};
};

struct Sheet {
  const ReportQuery* query;
  const ReportFacts* facts;
  Held count = {};      // of the machine
  Held reported = {};   // seconds
  double possible = 0;  // seconds of the whole period
};

std::string amount_text(const Sheet& sheet, double seconds, double of) {
  const ReportQuery& query = *sheet.query;
  const double divisor = query.unit == ReportUnit::hours     ? 3600
                         : query.unit == ReportUnit::minutes ? 60
                                                             : 1;
  const auto percent = fmt::format("{:.2f}%", of > 0 ? seconds * 100 / of : 0);
  if (!query.amount) return percent;
  auto text = fmt::format("{:.0f}", seconds / divisor);
  if (query.percent) text += fmt::format("({})", percent);
  return text;
}

using CellText = std::string (*)(const Sheet&, const ReportRow&, ReportTres);

struct ReportField {
  std::string_view name;  // behind format=
  std::string_view header;
  std::size_t width;  // 0: an amount's
  bool of_machine;
  bool of_users;
  CellText text;
};

// clang-format off
#define CELL(expression) [](const Sheet& sheet, const ReportRow& row, ReportTres tres) -> std::string { (void)sheet; (void)row; (void)tres; return expression; }
#define PART(member) CELL(amount_text(sheet, row.member.at(place(tres)), sheet.reported.at(place(tres))))
constexpr auto kReportFields = std::to_array<ReportField>({
    {"Accounts", "Account", 15, false, true, CELL(sheet.query->tree ? std::string(static_cast<std::size_t>(row.depth), ' ') + row.account : row.account)},
    {"Allocated", "Allocated", 0, true, false, PART(used)},
    {"Cluster", "Cluster", 9, true, true, CELL(sheet.facts->cluster.cluster)},
    {"Down", "Down", 0, true, false, PART(down)},
    {"Energy", "Energy", 0, false, true, CELL(amount_text(sheet, row.used.at(place(ReportTres::energy)), 0))},
    {"Idle", "Idle", 0, true, false, PART(idle)},
    {"Login", "Login", 9, false, true, CELL(row.login)},
    {"OverCommitted", "Over Comm", 0, true, false, PART(over)},
    {"Planned", "Planned", 0, true, false, PART(planned)},
    {"PlannedDown", "PLND Down", 0, true, false, CELL(amount_text(sheet, 0, sheet.reported.at(place(tres))))},
    {"Proper", "Proper Name", 15, false, true, CELL(row.login.empty() ? "" : sheet.facts->proper_name(row.login))},
    {"Reported", "Reported", 0, true, false, CELL(amount_text(sheet, sheet.reported.at(place(tres)), sheet.possible * sheet.count.at(place(tres))))},
    {"TresCount", "TRES Count", 10, true, true, CELL(fmt::format("{:.0f}", sheet.count.at(place(tres))))},
    {"TresName", "TRES Name", 14, true, true, CELL(std::string(tres_name(tres)))},
    {"Used", "Used", 0, false, true, PART(used)},
});
#undef CELL
#undef PART
// clang-format on

std::string usual_report_format(const ReportQuery& query) {
  const std::string named = query.tres_given ? ",TresName" : "";
  const std::string energy = query.tres_given ? "" : ",Energy";
  switch (query.kind) {
    case ReportKind::utilization:
      return "Cluster" + named + ",Allocated,Down,PlannedDown,Idle,Planned,Reported";
    case ReportKind::accounts_by_user:
      return "Cluster,Accounts,Login,Proper" + named + ",Used" + energy;
    case ReportKind::users_by_account:
    case ReportKind::top:
      break;
  }
  return "Cluster,Login,Proper,Accounts" + named + ",Used" + energy;
}

struct ReportColumn {
  const ReportField* field;
  Column column;
};

std::vector<ReportColumn> choose_report_columns(const ReportQuery& query, ReportText& text) {
  std::vector<ReportColumn> chosen;
  const auto format = query.format.empty() ? usual_report_format(query) : query.format;
  const auto fields = parse_accounting_format(format);
  if (!fields) {
    text.complaints.push_back(fields.error().message);
    return chosen;
  }
  const bool machine = query.kind == ReportKind::utilization;
  for (const AccountingField& one : *fields) {
    const auto* const field = std::ranges::find_if(kReportFields, [&](const ReportField& known) {
      return (machine ? known.of_machine : known.of_users) &&
             known.name.size() >= one.name.size() &&
             equals_ignoring_case(known.name.substr(0, one.name.size()), one.name);
    });
    if (field == kReportFields.end()) {
      text.complaints.push_back(fmt::format(" Unknown field '{}'", one.name));
      continue;
    }
    std::size_t width = field->width;
    auto align = Align::right;
    if (width == 0) width = query.amount && query.percent ? 17 : 8;
    if (query.tree && field->name == "Accounts") {
      width = 20;
      align = Align::left;
    }
    chosen.push_back(
        {&*field,
         {std::string(field->header), one.width.value_or(width), one.align.value_or(align), " "}});
  }
  return chosen;
}

// --- the rows

bool chosen_or_any(const std::vector<std::string>& wanted, const std::string& name) {
  return wanted.empty() || std::ranges::find(wanted, name) != wanted.end();
}

// In slices of an hour: what waits counts as planned up to what was idle in the same hour.
ReportRow machine_row(const Sheet& sheet) {
  constexpr std::int64_t kSlice = 3'600'000;
  const ReportFacts& facts = *sheet.facts;
  const Span all = period_of(*sheet.query, facts);
  ReportRow row;
  if (all.to <= all.from) return row;
  struct Slice {
    Held used = {};
    Held waiting = {};
  };
  std::map<std::int64_t, Slice> slices;
  const auto spread = [&](const Span& span, const Held& amount, Held Slice::*to) {
    const Span part = within(span, all);
    for (auto at = part.from; at < part.to;) {
      const auto slice = (at - all.from) / kSlice;
      const auto end = std::min(part.to, all.from + (slice + 1) * kSlice);
      add(slices[slice].*to, amount, Span{at, end}.seconds());
      at = end;
    }
  };
  for (const api::JobInfo& job : facts.jobs) {
    Held amount = amounts(job, facts.cluster.node);
    spread(running_span(job, facts.now), amount, &Slice::used);
    const auto count = static_cast<double>(job_count(job));
    for (double& one : amount) one *= count;
    spread(waiting_span(job, facts.now), amount, &Slice::waiting);
  }
  for (const auto& [number, slice] : slices) {
    const Span hour = within({all.from + number * kSlice, all.from + (number + 1) * kSlice}, all);
    for (std::size_t i = 0; i < kTresKinds; ++i) {
      const double whole = sheet.count.at(i) * hour.seconds();
      const double used = std::min(slice.used.at(i), whole);
      const double planned = std::min(slice.waiting.at(i), whole - used);
      row.used.at(i) += used;
      row.planned.at(i) += planned;
      row.over.at(i) += slice.waiting.at(i) - planned;
    }
  }
  for (std::size_t i = 0; i < kTresKinds; ++i) {
    row.idle.at(i) = sheet.reported.at(i) - row.used.at(i) - row.planned.at(i);
  }
  return row;
}

using ByUser = std::map<std::string, Held>;  // in one account

std::map<std::string, ByUser> held_by_account(const Sheet& sheet) {
  const ReportFacts& facts = *sheet.facts;
  const Span all = period_of(*sheet.query, facts);
  std::map<std::string, ByUser> accounts;
  for (const api::JobInfo& job : facts.jobs) {
    const Span span = within(running_span(job, facts.now), all);
    if (span.to <= span.from || !chosen_or_any(sheet.query->users, job.user)) continue;
    add(accounts[account_of(job)][job.user], amounts(job, facts.cluster.node), span.seconds());
  }
  return accounts;
}

// From the root down; an account that is in no book is below the root.
void add_account(const std::map<std::string, ByUser>& held,
                 const std::multimap<std::string, std::string>& below, const Sheet& sheet,
                 const std::string& name, int depth, std::vector<ReportRow>& rows) {
  const std::size_t own = rows.size();
  rows.push_back({.account = name, .depth = depth});
  if (const auto users = held.find(name); users != held.end()) {
    for (const auto& [user, used] : users->second) {
      rows.push_back({.account = name, .login = user, .depth = depth + 1, .used = used});
      add(rows[own].used, used, 1);
    }
  }
  const auto [first, last] = below.equal_range(name);
  for (auto child = first; child != last; ++child) {
    const std::size_t at = rows.size();
    add_account(held, below, sheet, child->second, depth + 1, rows);
    if (rows.size() > at) add(rows[own].used, Held(rows[at].used), 1);
  }
  if (rows.size() == own + 1) rows.pop_back();  // nobody held anything of it
}

std::vector<ReportRow> account_rows(const Sheet& sheet) {
  const ReportQuery& query = *sheet.query;
  const auto held = held_by_account(sheet);
  std::multimap<std::string, std::string> below;
  std::set<std::string> known = {"root"};
  for (const api::AssociationInfo& one : sheet.facts->book.associations) {
    if (!one.user.empty() || one.parent.empty() || !known.insert(one.account).second) continue;
    below.emplace(one.parent, one.account);
  }
  for (const auto& [account, users] : held) {
    if (known.insert(account).second) below.emplace("root", account);
  }
  std::vector<ReportRow> rows;
  add_account(held, below, sheet, "root", 0, rows);
  // As in Slurm: with users chosen there are no sums.
  std::erase_if(rows, [&](const ReportRow& row) {
    return !chosen_or_any(query.accounts, row.account) ||
           (!query.users.empty() && row.login.empty());
  });
  return rows;
}

std::vector<ReportRow> user_rows(const Sheet& sheet) {
  const ReportQuery& query = *sheet.query;
  std::vector<ReportRow> rows;
  for (const auto& [account, users] : held_by_account(sheet)) {
    if (!chosen_or_any(query.accounts, account)) continue;
    for (const auto& [user, used] : users) {
      const auto same =
          !query.group ? rows.end() : std::ranges::find(rows, user, &ReportRow::login);
      if (same == rows.end()) {
        rows.push_back({.account = account, .login = user, .used = used});
      } else {
        same->account += ", " + account;
        add(same->used, used, 1);
      }
    }
  }
  const std::size_t by = place(query.tres.front());
  std::ranges::stable_sort(
      rows, [by](const ReportRow& a, const ReportRow& b) { return a.used.at(by) > b.used.at(by); });
  if (query.kind == ReportKind::top && rows.size() > query.top) rows.resize(query.top);
  return rows;
}

std::vector<ReportRow> report_rows(const Sheet& sheet) {
  if (!sheet.query->here) return {};
  switch (sheet.query->kind) {
    case ReportKind::utilization:
      // Of what is to come there is nothing to tell.
      if (sheet.reported.at(place(ReportTres::cpu)) <= 0) return {};
      return {machine_row(sheet)};
    case ReportKind::accounts_by_user:
      return account_rows(sheet);
    case ReportKind::users_by_account:
    case ReportKind::top:
      break;
  }
  return user_rows(sheet);
}

std::string report_title(const ReportQuery& query) {
  const auto between = fmt::format("{} - {}", format_timestamp(query.start),
                                   format_timestamp(query.end - seconds(1)));
  const auto length = fmt::format(" ({} secs)", (query.end - query.start) / seconds(1));
  switch (query.kind) {
    case ReportKind::utilization:
      return "Cluster Utilization " + between;
    case ReportKind::accounts_by_user:
      return "Cluster/Account/User Utilization " + between + length;
    case ReportKind::users_by_account:
      return "Cluster/User/Account Utilization " + between + length;
    case ReportKind::top:
      break;
  }
  return fmt::format("Top {} Users {}{}", query.top, between, length);
}

std::string unit_words(const ReportQuery& query) {
  constexpr std::array<std::string_view, 3> kUnits = {"Seconds", "Minutes", "Hours"};
  if (!query.amount) return "Percentage of Total";
  return fmt::format("{} {}{}", query.tres_given ? "TRES" : "CPU",
                     kUnits.at(static_cast<std::size_t>(query.unit)),
                     query.percent ? "/Percentage of Total" : "");
}

// Rounded to the hour in the local time zone; or midnight, so many days before.
WallTime to_hour(WallTime time, std::optional<int> days_before = {}) {
  const std::time_t second = time.ms() / 1'000;
  std::tm local{};
  ::localtime_r(&second, &local);
  if (local.tm_sec >= 30) ++local.tm_min;
  if (local.tm_min >= 30) ++local.tm_hour;
  local.tm_sec = local.tm_min = 0;
  if (days_before) {
    ::localtime_r(&second, &local);
    local.tm_sec = local.tm_min = local.tm_hour = 0;
    local.tm_mday -= *days_before;
  }
  local.tm_isdst = -1;
  return WallTime(static_cast<std::int64_t>(std::mktime(&local)) * 1'000);
}

}  // namespace

ReportText format_report(const ReportQuery& query, const ReportFacts& facts) {
  Sheet sheet{&query, &facts};
  sheet.count = capacity(facts.cluster.node);
  sheet.possible = Span{query.start.ms(), query.end.ms()}.seconds();
  add(sheet.reported, sheet.count, period_of(query, facts).seconds());
  ReportText text;
  const auto columns = choose_report_columns(query, text);
  const bool parsable = !query.delimiter.empty();
  const auto line = [&](const auto& text_of, TooLong too_long) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (parsable) {
        text.out += text_of(columns[i]);
        if (query.trailing || i + 1 < columns.size()) text.out += query.delimiter;
      } else {
        append_cell(text.out, text_of(columns[i]), columns[i].column, too_long);
      }
    }
    text.out += '\n';
  };
  if (query.header) {
    const std::string rule(80, '-');
    text.out += fmt::format("{0}\n{1}\nUsage reported in {2}\n{0}\n", rule, report_title(query),
                            unit_words(query));
    line([](const ReportColumn& one) { return std::string(one.column.header); }, TooLong::cut);
    if (!parsable) {
      line([](const ReportColumn& one) { return std::string(one.column.width, '-'); },
           TooLong::cut);
    }
  }
  for (const ReportRow& row : report_rows(sheet)) {
    for (const ReportTres tres : query.tres) {
      line([&](const ReportColumn& one) { return one.field->text(sheet, row, tres); },
           TooLong::plus);
    }
  }
  return text;
}

std::vector<ReportTres> parse_report_tres(std::string_view text) {
  std::vector<ReportTres> chosen;
  const bool all = equals_ignoring_case(text, "all");
  for (std::size_t i = 0; i < kTresKinds; ++i) {
    const auto words = split(text, ',');
    if (all || std::ranges::any_of(words, [&](std::string_view word) {
          return equals_ignoring_case(word, kTresNames.at(i));
        })) {
      chosen.push_back(static_cast<ReportTres>(i));
    }
  }
  return chosen;
}

bool parse_report_time(std::string_view text, ReportQuery& query) {
  struct Known {
    std::string_view name;
    ReportUnit unit;
    bool amount;
    bool percent;
  };
  constexpr auto kKnown = std::to_array<Known>({
      {"SecPer", ReportUnit::seconds, true, true},
      {"MinPer", ReportUnit::minutes, true, true},
      {"HourPer", ReportUnit::hours, true, true},
      {"Seconds", ReportUnit::seconds, true, false},
      {"Minutes", ReportUnit::minutes, true, false},
      {"Hours", ReportUnit::hours, true, false},
      {"Percent", ReportUnit::minutes, false, true},
  });
  // The plain ones where it could be either.
  const Known* found = nullptr;
  for (const Known& one : kKnown) {
    if (!text.empty() && one.name.size() >= text.size() &&
        equals_ignoring_case(one.name.substr(0, text.size()), text)) {
      found = &one;
    }
  }
  if (found == nullptr) return false;
  query.unit = found->unit;
  query.amount = found->amount;
  query.percent = found->percent;
  return true;
}

ReportPeriod report_period(std::optional<WallTime> start, std::optional<WallTime> end,
                           WallTime now) {
  ReportPeriod period{start ? to_hour(*start) : to_hour(now, 1),
                      end ? to_hour(*end) : to_hour(now, 0)};
  if (period.end - period.start < hours(1)) period.end = period.start + hours(1);
  return period;
}

}  // namespace aliquot::cli
