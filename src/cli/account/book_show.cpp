#include "cli/account/book_show.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/slurm_time.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/account/settings.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {
namespace {

// What a row is about; what it is not about is null.
struct BookRow {
  const api::AccountBook* book = nullptr;
  const api::ClusterInfo* cluster = nullptr;
  const api::QosInfo* qos = nullptr;
  const api::AccountInfo* account = nullptr;
  const api::AccountUserInfo* user = nullptr;
  const api::AssociationInfo* association = nullptr;
  std::size_t depth = 0;
  std::array<std::string, 3> tres = {};
};

struct BookField {
  std::string_view name;  // of format=; it is the header where there is no other
  std::string_view header;
  std::size_t width;
  // Which of a row's records has it, as a setting of that name or by its own text.
  std::string_view setting = {};
  std::string (*text)(const BookRow&) = nullptr;
};

// clang-format off
#define TEXT(expression) [](const BookRow& row) -> std::string { (void)row; return std::string(expression); }
constexpr auto kBookFields = std::to_array<BookField>({
    {"Cluster", "Cluster", 10, {}, TEXT(row.cluster->cluster)},
    {"Account", "Account", 10, {}, [](const BookRow& row) -> std::string {
       if (row.account != nullptr) return row.account->name;
       return row.association != nullptr ? row.association->account : std::string();
     }},
    {"User", "User", 10, {}, [](const BookRow& row) -> std::string {
       if (row.user != nullptr) return row.user->name;
       return row.association != nullptr ? row.association->user : std::string();
     }},
    {"Partition", "Partition", 10, {}, TEXT("")},
    {"Share", "Share", 9, "Fairshare"},
    {"Fairshare", "Share", 9, "Fairshare"},
    {"Priority", "Priority", 10, "Priority"},
    {"GraceTime", "GraceTime", 10, {}, TEXT(format_duration(Millis(row.qos == nullptr ? 0 : row.qos->grace_ms.value_or(0)), TimeStyle::scontrol))},
    {"Preempt", "Preempt", 10, {}, TEXT("")},
    {"PreemptExemptTime", "PreemptExemptTime", 19, {}, TEXT("")},
    {"PreemptMode", "PreemptMode", 11, "PreemptMode"},
    {"Flags", "Flags", 40, "Flags"},
    {"UsageThres", "UsageThres", 10, {}, TEXT("")},
    {"UsageFactor", "UsageFactor", 11, {}, TEXT("1.000000")},
    {"GrpJobs", "GrpJobs", 7, "GrpJobs"},
    {"GrpTRES", "GrpTRES", 13, "GrpTRES"},
    {"GrpSubmit", "GrpSubmit", 9, "GrpSubmitJobs"},
    {"GrpWall", "GrpWall", 11, {}, TEXT("")},
    {"GrpTRESMins", "GrpTRESMins", 13, {}, TEXT("")},
    {"GrpTRESRunMins", "GrpTRESRunMins", 13, {}, TEXT("")},
    {"MaxJobs", "MaxJobs", 7, "MaxJobs"},
    {"MaxTRES", "MaxTRES", 13, "MaxTRES"},
    {"MaxTRESPerNode", "MaxTRESPerNode", 14, {}, TEXT("")},
    {"MaxSubmit", "MaxSubmit", 9, "MaxSubmitJobs"},
    {"MaxWall", "MaxWall", 11, "MaxWall"},
    {"MaxTRESMins", "MaxTRESMins", 13, {}, TEXT("")},
    {"MaxTRESPU", "MaxTRESPU", 13, "MaxTRESPerUser"},
    {"MaxTRESPerUser", "MaxTRESPU", 13, "MaxTRESPerUser"},
    {"MaxJobsPU", "MaxJobsPU", 9, "MaxJobsPerUser"},
    {"MaxJobsPerUser", "MaxJobsPU", 9, "MaxJobsPerUser"},
    {"MaxSubmitPU", "MaxSubmitPU", 11, "MaxSubmitJobsPerUser"},
    {"MaxSubmitJobsPerUser", "MaxSubmitPU", 11, "MaxSubmitJobsPerUser"},
    {"MaxTRESPA", "MaxTRESPA", 13, {}, TEXT("")},
    {"MaxJobsPA", "MaxJobsPA", 9, {}, TEXT("")},
    {"MaxSubmitPA", "MaxSubmitPA", 11, {}, TEXT("")},
    {"MinTRES", "MinTRES", 13, {}, TEXT("")},
    {"QOS", "QOS", 20, {}, TEXT(row.association == nullptr ? "" : qos_of(*row.book, *row.association))},
    {"DefaultQOS", "Def QOS", 9, "DefaultQOS"},
    {"ParentName", "Par Name", 10, "Parent"},
    {"Description", "Descr", 20, "Description"},
    {"Organization", "Org", 20, "Organization"},
    {"DefaultAccount", "Def Acct", 10, "DefaultAccount"},
    {"AdminLevel", "Admin", 9, {}, TEXT(row.user != nullptr && row.user->name == "root" ? "Administrator" : "None")},
    {"ControlHost", "ControlHost", 15, {}, TEXT(row.cluster->node.name)},
    {"ControlPort", "ControlPort", 12, {}, TEXT("0")},
    {"RPC", "RPC", 5, {}, TEXT("0")},
    {"Type", "Type", 8, {}, TEXT(row.tres[0])},
    {"Name", "Name", 15, {}, TEXT(row.qos != nullptr ? row.qos->name : row.tres[1])},
    {"ID", "ID", 6, {}, TEXT(row.tres[2])},
});
#undef TEXT

constexpr std::string_view kAssociationFormat =
    "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,"
    "MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS,GrpTRESRunMins";
constexpr std::string_view kQosFormat =
    "Name%10,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags,UsageThres,UsageFactor,"
    "GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode,"
    "MaxTRESMins,MaxWall,MaxTRESPU,MaxJobsPU,MaxSubmitPU,MaxTRESPA,MaxJobsPA,MaxSubmitPA,MinTRES";
constexpr std::string_view kClusterFormat =
    "Cluster,ControlHost,ControlPort,RPC,Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,"
    "MaxWall,QOS,DefaultQOS";
// clang-format on

std::string usual_format(const ShowWanted& wanted) {
  const std::string rest =
      std::string(kAssociationFormat).substr(sizeof "Cluster,Account,User" - 1);
  switch (wanted.entity) {
    case Entity::account:
      return wanted.with_associations
                 ? "Account,Description,Organization,Cluster,ParentName,User" + rest
                 : "Account,Description,Organization";
    case Entity::association:
      return std::string(kAssociationFormat);
    case Entity::cluster:
      return std::string(kClusterFormat);
    case Entity::qos:
      return std::string(kQosFormat);
    case Entity::tres:
      return "Type,Name,ID";
    case Entity::user:
      return wanted.with_associations ? "User,DefaultAccount,AdminLevel,Cluster,Account" + rest
                                      : "User,DefaultAccount,AdminLevel";
  }
  return "";
}

template <class T>
std::optional<std::string> setting_text(std::span<const Setting<T>> settings, const T* record,
                                        std::string_view name) {
  const auto found = std::ranges::find(settings, name, &Setting<T>::name);
  if (record == nullptr || found == settings.end()) return std::nullopt;
  return found->show(*record);
}

std::string value_of(const BookField& field, const BookRow& row) {
  if (field.text != nullptr) return field.text(row);
  // A QOS and an association have settings of the same name.
  if (auto text = setting_text(qos_settings(), row.qos,
                               field.setting == "MaxTRES" ? "MaxTRESPerJob" : field.setting))
    return *text;
  if (auto text = setting_text(association_settings(), row.association, field.setting))
    return *text;
  if (auto text = setting_text(account_settings(), row.account, field.setting)) return *text;
  if (auto text = setting_text(user_settings(), row.user, field.setting)) return *text;
  return "";
}

struct ChosenColumn {
  const BookField* field;
  Column column;
};

Result<std::vector<ChosenColumn>> choose_columns(std::string_view format, bool tree,
                                                 Entity entity) {
  std::vector<ChosenColumn> chosen;
  for (const std::string_view word : split(format, ',')) {
    if (word.empty()) continue;
    const auto percent = word.find('%');
    const std::string_view name = word.substr(0, percent);
    const BookField* field = nullptr;
    for (const BookField& one : kBookFields) {
      const bool begins = name.size() <= one.name.size() &&
                          equals_ignoring_case(one.name.substr(0, name.size()), name);
      if (equals_ignoring_case(one.name, name)) {
        field = &one;
        break;
      }
      if (begins && field == nullptr) field = &one;
    }
    if (field == nullptr) {
      return fail(Error::Code::invalid_argument, "Unknown field '{}'", name);
    }
    const bool account = field->name == "Account" && tree;
    const bool qos = field->name == "Name" && entity == Entity::qos;
    Column column{.header = std::string(field->header),
                  .width = account ? 20
                           : qos   ? 10
                                   : field->width,
                  .align = account ? Align::left : Align::right,
                  .suffix = " "};
    if (percent != word.npos) {
      std::string_view width = word.substr(percent + 1);
      if (width.starts_with('-')) {
        column.align = Align::left;
        width.remove_prefix(1);
      }
      const auto number = parse_digits(width);
      if (!number || *number < 1 || *number > 1'000) {
        return fail(Error::Code::invalid_argument, " {} is no width of a field", quote(word));
      }
      column.width = static_cast<std::size_t>(*number);
    }
    chosen.push_back({field, std::move(column)});
  }
  return chosen;
}

bool wanted_one(const std::vector<std::string>& wanted, std::string_view name) {
  return wanted.empty() || std::ranges::find(wanted, name) != wanted.end();
}

std::vector<BookRow> tres_rows(const api::ClusterInfo& cluster) {
  std::vector<BookRow> rows;
  const auto add = [&](std::string type, std::string name, std::string id) {
    BookRow row;
    row.tres = {std::move(type), std::move(name), std::move(id)};
    rows.push_back(std::move(row));
  };
  add("cpu", "", "1");
  add("mem", "", "2");
  add("energy", "", "3");
  add("node", "", "4");
  add("billing", "", "5");
  add("fs", "disk", "6");
  add("vmem", "", "7");
  add("pages", "", "8");
  std::int64_t id = 1'001;
  std::set<std::string> models;
  for (const api::GpuInfo& gpu : cluster.node.gpus) models.insert(gres_type(gpu.model));
  if (!models.empty()) add("gres", "gpu", std::to_string(id));
  for (const std::string& model : models) add("gres", "gpu:" + model, std::to_string(++id));
  return rows;
}

template <class T>
const T* named(const std::vector<T>& list, std::string_view name) {
  const auto found = std::ranges::find(list, name, &T::name);
  return found == list.end() ? nullptr : &*found;
}

// Of users by name that which was added last stands first, without the tree around it.
std::vector<TreeRow> shown_of(const api::AccountBook& book, const ShowWanted& wanted) {
  if (wanted.users.empty() || wanted.tree) return tree_of(book);
  std::vector<TreeRow> rows;
  for (auto one = book.associations.rbegin(); one != book.associations.rend(); ++one) {
    rows.push_back({&*one, 0});
  }
  return rows;
}

std::vector<BookRow> rows_of(const api::AccountBook& book, const api::ClusterInfo& cluster,
                             const ShowWanted& wanted) {
  std::vector<BookRow> rows;
  // A user is meant by his name, an account with or without its users.
  const auto association_wanted = [&](const api::AssociationInfo& one) {
    return wanted_one(wanted.accounts, one.account) && wanted_one(wanted.users, one.user);
  };
  switch (wanted.entity) {
    case Entity::association:
      for (const TreeRow& one : shown_of(book, wanted)) {
        if (!association_wanted(*one.association)) continue;
        rows.push_back({.association = one.association, .depth = one.depth});
      }
      break;
    case Entity::account:
    case Entity::user: {
      const bool users = wanted.entity == Entity::user;
      if (wanted.with_associations) {
        for (const TreeRow& one : shown_of(book, wanted)) {
          if (!association_wanted(*one.association)) continue;
          if (users && one.association->user.empty()) continue;
          rows.push_back(
              {.account = users ? nullptr : named(book.accounts, one.association->account),
               .user = users ? named(book.users, one.association->user) : nullptr,
               .association = one.association});
        }
        break;
      }
      for (const auto& account : book.accounts) {
        if (!users && wanted_one(wanted.accounts, account.name))
          rows.push_back({.account = &account});
      }
      for (const auto& user : book.users) {
        if (users && wanted_one(wanted.users, user.name)) rows.push_back({.user = &user});
      }
      break;
    }
    case Entity::qos:
      for (const auto& qos : book.qos) {
        if (wanted_one(wanted.names, qos.name)) rows.push_back({.qos = &qos});
      }
      break;
    case Entity::cluster:
      if (wanted_one(wanted.names, cluster.cluster)) {
        rows.push_back({.association = tree_of(book).front().association});
      }
      break;
    case Entity::tres:
      rows = tres_rows(cluster);
      break;
  }
  for (BookRow& row : rows) {
    row.book = &book;
    row.cluster = &cluster;
  }
  if (wanted.entity == Entity::account && !wanted.with_associations) {
    std::ranges::stable_sort(rows, {}, [](const BookRow& row) { return row.account->name; });
  }
  if (wanted.entity == Entity::user && !wanted.with_associations) {
    std::ranges::stable_sort(rows, {}, [](const BookRow& row) { return row.user->name; });
  }
  return rows;
}

void add_below(const api::AccountBook& book, const std::string& account, std::size_t depth,
               std::vector<TreeRow>& rows) {
  std::vector<const api::AssociationInfo*> users;
  std::vector<const api::AssociationInfo*> accounts;
  for (const auto& one : book.associations) {
    if (one.account == account) {
      if (one.user.empty()) {
        rows.push_back({&one, depth});
      } else {
        users.push_back(&one);
      }
    } else if (one.user.empty() && one.parent == account) {
      accounts.push_back(&one);
    }
  }
  std::ranges::sort(users, {}, &api::AssociationInfo::user);
  std::ranges::sort(accounts, {}, &api::AssociationInfo::account);
  for (const auto* user : users) rows.push_back({user, depth + 1});
  for (const auto* below : accounts) add_below(book, below->account, depth + 1, rows);
}

}  // namespace

std::optional<Entity> parse_entity(std::string_view word) {
  struct Name {
    std::string_view name;
    std::size_t least;
    Entity entity;
  };
  constexpr auto kNames = std::to_array<Name>({{"accounts", 3, Entity::account},
                                               {"associations", 2, Entity::association},
                                               {"clusters", 2, Entity::cluster},
                                               {"qos", 1, Entity::qos},
                                               {"tres", 2, Entity::tres},
                                               {"users", 1, Entity::user}});
  for (const auto& [name, least, entity] : kNames) {
    if (word.size() >= least && word.size() <= name.size() &&
        equals_ignoring_case(word, name.substr(0, word.size()))) {
      return entity;
    }
  }
  return std::nullopt;
}

std::vector<TreeRow> tree_of(const api::AccountBook& book) {
  std::vector<TreeRow> rows;
  add_below(book, "root", 0, rows);
  return rows;
}

std::string qos_of(const api::AccountBook& book, const api::AssociationInfo& association) {
  const api::AssociationInfo* one = &association;
  for (std::size_t i = 0; i <= book.associations.size() && one != nullptr; ++i) {
    if (!one->qos.empty()) return join(one->qos);
    const std::string& above = one->user.empty() ? one->parent : one->account;
    const auto found = std::ranges::find_if(book.associations, [&](const auto& other) {
      return other.account == above && other.user.empty();
    });
    one = found == book.associations.end() ? nullptr : &*found;
  }
  return "normal";
}

Result<std::string> show_book(const api::AccountBook& book, const api::ClusterInfo& cluster,
                              const ShowWanted& wanted, const ShowLayout& layout) {
  const auto chosen = TRY(choose_columns(
      wanted.format.empty() ? usual_format(wanted) : wanted.format, wanted.tree, wanted.entity));
  std::vector<Row> rows;
  for (const BookRow& record : rows_of(book, cluster, wanted)) {
    Row row;
    for (const ChosenColumn& one : chosen) {
      std::string text = value_of(*one.field, record);
      if (wanted.tree && one.field->name == "Account") text = std::string(record.depth, ' ') + text;
      row.push_back(std::move(text));
    }
    rows.push_back(std::move(row));
  }
  std::vector<Column> columns;
  for (const ChosenColumn& one : chosen) columns.push_back(one.column);
  if (!layout.delimiter) {
    // A header is cut, a value marked.
    std::string text;
    if (layout.header) {
      text = render_table(columns, {},
                          {.too_long = TooLong::cut, .header = true, .dashes = true, .prefix = ""});
    }
    return text + render_table(
                      columns, rows,
                      {.too_long = TooLong::plus, .header = false, .dashes = false, .prefix = ""});
  }
  std::string text;
  const auto line = [&](const auto& cell, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      text += cell(i);
      if (layout.trailing || i + 1 < count) text += *layout.delimiter;
    }
    text += '\n';
  };
  if (layout.header) line([&](std::size_t i) { return columns[i].header; }, columns.size());
  for (const Row& row : rows) line([&](std::size_t i) { return row[i]; }, row.size());
  return text;
}

}  // namespace aliquot::cli
