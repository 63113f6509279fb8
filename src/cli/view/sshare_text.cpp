#include "cli/view/sshare_text.hpp"

#include <fmt/format.h>

#include <array>

#include "base/format_spec.hpp"
#include "base/table.hpp"
#include "base/text.hpp"

namespace aliquot::cli {
namespace {

// The root's row has no user; its usage is everybody's.
struct ShareRow {
  const api::ShareInfo* user = nullptr;
  const api::ShareList* all = nullptr;
};

std::int64_t total(const ShareRow& row, std::int64_t api::ShareInfo::*member) {
  if (row.user != nullptr) return row.user->*member;
  std::int64_t sum = 0;
  for (const api::ShareInfo& one : row.all->users) sum += one.*member;
  return sum;
}

std::string millionths(std::int64_t part) {
  return fmt::format("{}.{:06}", part / 1'000'000, part % 1'000'000);
}

std::string level(const api::ShareInfo& user) {
  if (user.norm_usage == 0) return "inf";
  return fmt::format("{:.6f}",
                     static_cast<double>(user.norm_shares) / static_cast<double>(user.norm_usage));
}

struct ShareField {
  std::string_view name;
  std::size_t width;
  Align align;
  std::string (*text)(const ShareRow& row);
};

// clang-format off
#define TEXT(expression) [](const ShareRow& row) -> std::string { (void)row; return expression; }
#define USER(expression) [](const ShareRow& row) -> std::string { if (row.user == nullptr) return ""; const api::ShareInfo& user = *row.user; return expression; }
constexpr auto kShareFields = std::to_array<ShareField>({
    {"Account", 20, Align::left, TEXT(row.user == nullptr ? "root" : " " + row.user->account)},
    {"User", 10, Align::right, USER(user.user)},
    {"RawShares", 10, Align::right, USER(std::to_string(user.shares))},
    {"NormShares", 11, Align::right, TEXT(row.user == nullptr ? "0.000000" : millionths(row.user->norm_shares))},
    {"RawUsage", 11, Align::right, TEXT(std::to_string(total(row, &api::ShareInfo::usage_ms) / 1'000))},
    {"NormUsage", 11, Align::right, USER(millionths(user.norm_usage))},
    {"EffectvUsage", 13, Align::right, TEXT(row.user == nullptr ? "1.000000" : millionths(row.user->norm_usage))},
    {"FairShare", 10, Align::right, USER(millionths(user.factor))},
    {"LevelFS", 10, Align::right, USER(level(user))},
    {"GrpTRESMins", 30, Align::right, TEXT("")},
    {"GrpTRESRaw", 30, Align::right, TEXT("")},
    {"TRESRunMins", 30, Align::right, TEXT(fmt::format("cpu={},gres/gpu={}", total(row, &api::ShareInfo::held_cpu_min), total(row, &api::ShareInfo::held_gpu_min)))},
    {"Cluster", 10, Align::right, TEXT("")},
    {"Partition", 12, Align::right, TEXT("")},
    {"ID", 6, Align::right, TEXT(row.user == nullptr ? "1" : std::to_string(row.user->uid))},
});
#undef TEXT
#undef USER
// clang-format on

const ShareField* find_share_field(std::string_view name) {
  for (const ShareField& field : kShareFields) {
    if (field.name.size() >= name.size() &&
        equals_ignoring_case(field.name.substr(0, name.size()), name)) {
      return &field;
    }
  }
  return nullptr;
}

struct ShareColumn {
  const ShareField* field;
  Column column;
};

Result<std::vector<ShareColumn>> choose_share_fields(std::string_view format) {
  std::vector<ShareColumn> chosen;
  for (const auto& one : TRY(parse_accounting_format(format))) {
    const ShareField* field = find_share_field(one.name);
    if (field == nullptr) {
      return fail(Error::Code::invalid_argument, "Invalid field requested: \"{}\"", one.name);
    }
    chosen.push_back({field,
                      {std::string(field->name), one.width.value_or(field->width),
                       one.align.value_or(field->align), " "}});
  }
  return chosen;
}

}  // namespace

std::string list_sshare_fields() {
  std::string out;
  std::size_t in_line = 0;
  for (const ShareField& field : kShareFields) {
    out += fmt::format("{:<19}", field.name);
    out += ++in_line % 4 == 0 ? "\n" : " ";
  }
  if (in_line % 4 != 0) out.back() = '\n';
  return out;
}

Result<std::string> format_sshare(const api::ShareList& all,
                                  const std::vector<const api::ShareInfo*>& shown,
                                  const SshareView& view) {
  const auto columns = TRY(choose_share_fields(view.format));
  std::string out;
  const auto line = [&](const auto& text_of) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (view.delimiter) {
        out += text_of(columns[i]);
        if (view.trailing || i + 1 < columns.size()) out += *view.delimiter;
      } else {
        append_cell(out, text_of(columns[i]), columns[i].column, TooLong::plus);
      }
    }
    out += '\n';
  };
  if (view.header) {
    line([](const ShareColumn& one) { return std::string(one.field->name); });
    if (!view.delimiter) {
      line([](const ShareColumn& one) { return std::string(one.column.width, '-'); });
    }
  }
  const auto row = [&](const api::ShareInfo* user) {
    const ShareRow of{user, &all};
    line([&](const ShareColumn& one) { return one.field->text(of); });
  };
  if (!view.users_only) row(nullptr);
  for (const api::ShareInfo* user : shown) row(user);
  return out;
}

}  // namespace aliquot::cli
