#include "cli/account/book_edit.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "cli/account/settings.hpp"

namespace aliquot::cli {
namespace {

using api::AccountBook;
using api::AssociationInfo;

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string_view name : split(list, ',')) {
    if (!name.empty()) names.push_back(to_lower(name));
  }
  return names;
}

// Users keep their letters.
std::vector<std::string> users_in(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string_view name : split(list, ',')) {
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

bool is_key(std::string_view key, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view name) {
    return key.size() >= 3 && key.size() <= name.size() &&
           equals_ignoring_case(key, name.substr(0, key.size()));
  });
}

// Who is meant.
struct Meant {
  std::vector<std::string> names;  // of QOS
  std::vector<std::string> accounts;
  std::vector<std::string> users;
  bool here = true;  // clusters=: ours is among them
};

// Those of the words that say who is meant; the others are left in `rest`.
Meant find_meant(Entity entity, const std::vector<EditWord>& words, const std::string& cluster,
                 std::vector<EditWord>& rest) {
  Meant chosen;
  const auto add = [](std::vector<std::string>& to, std::vector<std::string> more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  for (const EditWord& word : words) {
    const bool own = word.key.empty() || is_key(word.key, {"names", "name"});
    if (entity == Entity::user && (own || is_key(word.key, {"users", "user"}))) {
      add(chosen.users, users_in(word.value));
    } else if (entity == Entity::qos && own) {
      add(chosen.names, names_in(word.value));
    } else if ((entity == Entity::account && own) || is_key(word.key, {"accounts", "acct"})) {
      add(chosen.accounts, names_in(word.value));
    } else if (is_key(word.key, {"clusters", "cluster"})) {
      const auto names = users_in(word.value);
      chosen.here = std::ranges::find(names, cluster) != names.end();
    } else {
      rest.push_back(word);
    }
  }
  return chosen;
}

std::string known_keys(Entity entity) {
  std::string text;
  const auto add = [&](const auto& settings) {
    for (const auto& one : settings) text += (text.empty() ? "" : ", ") + std::string(one.name);
  };
  if (entity == Entity::qos) {
    add(qos_settings());
  } else {
    if (entity == Entity::account) add(account_settings());
    if (entity == Entity::user) add(user_settings());
    add(association_settings());
  }
  return text;
}

tl::unexpected<Error> unknown(Entity entity, const EditWord& word) {
  return fail(Error::Code::invalid_argument,
              " Unknown option: {}{}{}\n Use keyword 'where' to modify condition\n"
              "sacctmgr: hint: options of this engine are {}",
              word.key, word.operation, word.value, known_keys(entity));
}

// True: there is such a setting, and it was read.
template <class Record>
Result<bool> apply(std::span<const Setting<Record>> settings, Record& record,
                   const EditWord& word) {
  const auto* setting = find_setting(settings, word.key);
  if (setting == nullptr) return false;
  const Assign how = word.operation == "+="   ? Assign::add
                     : word.operation == "-=" ? Assign::remove
                                              : Assign::set;
  if (auto read = setting->read(record, how, word.value); !read) {
    if (read.error().message.ends_with("is no number")) {
      return fail(Error::Code::invalid_argument,
                  "sacctmgr: error: Invalid value for {} ({})\n You didn't give me anything to set",
                  setting->name, word.value);
    }
    return fail(Error::Code::invalid_argument, " Bad {} value: {}", setting->name,
                read.error().message);
  }
  return true;
}

// ` Settings` with what is not as `usual` has it.
template <class Record>
std::string what_is_set(std::span<const Setting<Record>> settings, const Record& record,
                        const Record& usual, std::size_t width, bool skip_parent = false) {
  std::string text;
  for (const auto& one : settings) {
    if (skip_parent && one.name == "Parent") continue;
    const std::string value = one.show(record);
    if (value == one.show(usual)) continue;
    text += fmt::format("  {:<{}}= {}\n", one.name, width, value);
  }
  return text;
}

template <class List>
auto find_name(List& list, std::string_view name) {
  using Record = std::remove_reference_t<decltype(list.front())>;
  const auto found = std::ranges::find(list, name, &std::remove_const_t<Record>::name);
  return found == list.end() ? nullptr : &*found;
}

AssociationInfo* find_association(AccountBook& book, std::string_view account,
                                  std::string_view user) {
  const auto found = std::ranges::find_if(book.associations, [&](const AssociationInfo& one) {
    return one.account == account && one.user == user;
  });
  return found == book.associations.end() ? nullptr : &*found;
}

Result<Edited> add_accounts(AccountBook& book, const Meant& chosen,
                            const std::vector<EditWord>& rest, const std::string& cluster) {
  api::AccountInfo account;
  AssociationInfo association{.parent = "root"};
  for (const EditWord& word : rest) {
    const bool own = TRY(apply(account_settings(), account, word));
    if (!own && !TRY(apply(association_settings(), association, word))) {
      return unknown(Entity::account, word);
    }
  }
  if (find_association(book, association.parent, "") == nullptr) {
    return fail(Error::Code::not_found,
                " Parent account '{}' doesn't exist on cluster {}\n"
                "        Contact your admin to add this account.\n No associations created.",
                association.parent, cluster);
  }
  Edited edited;
  std::string names;
  std::string lines;
  api::AccountInfo shown;
  for (const std::string& name : chosen.accounts) {
    if (find_name(book.accounts, name) != nullptr) continue;
    shown = account;
    shown.name = name;
    if (shown.description.empty()) shown.description = name;
    if (shown.organization.empty()) shown.organization = name;
    book.accounts.push_back(shown);
    association.account = name;
    book.associations.push_back(association);
    names += fmt::format("  {}\n", name);
    lines += fmt::format("  A = {:<10} C = {:<10}\n", name, cluster);
    edited.changed = true;
  }
  if (!edited.changed) {
    edited.text += " Nothing new added.\n";
    return edited;
  }
  edited.text += " Adding Account(s)\n" + names + " Settings\n";
  // What stands there for want of better is said in general.
  edited.text += fmt::format(
      "  {:<15} = {}\n  {:<15} = {}\n", "Description",
      account.description.empty() ? "Account Name" : account.description, "Organization",
      account.organization.empty() ? "Parent/Account Name" : account.organization);
  edited.text += " Associations\n" + lines + " Settings\n";
  edited.text += what_is_set(association_settings(), association,
                             AssociationInfo{.account = association.account}, 14);
  return edited;
}

Result<Edited> add_users(AccountBook& book, Meant chosen, const std::vector<EditWord>& rest,
                         const std::string& cluster) {
  api::AccountUserInfo user;
  AssociationInfo association;
  for (const EditWord& word : rest) {
    const bool own = TRY(apply(user_settings(), user, word));
    if (own) continue;
    if (is_key(word.key, {"parent"}) || !TRY(apply(association_settings(), association, word))) {
      return unknown(Entity::user, word);
    }
  }
  if (chosen.accounts.empty() && !user.default_account.empty()) {
    chosen.accounts = {user.default_account};
  }
  if (chosen.accounts.empty()) {
    return fail(Error::Code::invalid_argument, " Need name of account to add user to.");
  }
  Edited edited;
  std::string names;
  std::string lines;
  for (const std::string& name : chosen.users) {
    for (const std::string& account : chosen.accounts) {
      if (find_association(book, account, "") == nullptr) {
        edited.complaint += fmt::format(
            " This account '{}' doesn't exist.\n        Contact your admin to add this account.\n",
            account);
        continue;
      }
      if (find_association(book, account, name) != nullptr) continue;
      if (find_name(book.users, name) == nullptr) {
        book.users.push_back({name, user.default_account.empty() ? account : user.default_account});
        names += fmt::format("  {}\n", name);
      }
      association.account = account;
      association.user = name;
      book.associations.push_back(association);
      lines += fmt::format("  U = {:<9.9} A = {:<10} C = {:<10}\n", name, account, cluster);
      edited.changed = true;
    }
  }
  if (!edited.changed) {
    edited.text = " Nothing new added.\n";
    return edited;
  }
  if (!names.empty()) edited.text += " Adding User(s)\n" + names;
  edited.text += " Associations =\n" + lines + " Non Default Settings\n";
  const AssociationInfo usual{.account = association.account, .user = association.user};
  edited.text += what_is_set(association_settings(), association, usual, 14, true);
  return edited;
}

Result<Edited> add_qos(AccountBook& book, const Meant& chosen, const std::vector<EditWord>& rest) {
  api::QosInfo qos;
  for (const EditWord& word : rest) {
    if (!TRY(apply(qos_settings(), qos, word))) return unknown(Entity::qos, word);
  }
  Edited edited;
  std::string names;
  for (const std::string& name : chosen.names) {
    if (find_name(book.qos, name) != nullptr) continue;
    book.qos.push_back(qos);
    book.qos.back().name = name;
    if (qos.description.empty()) book.qos.back().description = name;
    names += fmt::format("  {}\n", name);
    edited.changed = true;
  }
  if (!edited.changed) {
    edited.text += " Nothing new added.\n";
    return edited;
  }
  edited.text += " Adding QOS(s)\n" + names + " Settings\n";
  edited.text += fmt::format("  {:<14} = {}\n", "Description", book.qos.back().description);
  qos.description.clear();
  edited.text += what_is_set(qos_settings(), qos, api::QosInfo{}, 25);
  return edited;
}

// All that the words find_meant, of the associations of accounts or of users.
bool is_chosen(const AssociationInfo& one, Entity entity, const Meant& chosen) {
  if ((entity == Entity::user) != !one.user.empty()) return false;
  const auto in = [](const std::vector<std::string>& wanted, const std::string& name) {
    return wanted.empty() || std::ranges::find(wanted, name) != wanted.end();
  };
  return in(chosen.accounts, one.account) && in(chosen.users, one.user);
}

std::string association_line(const AssociationInfo& one, const std::string& cluster) {
  return one.user.empty()
             ? fmt::format("  C = {:<10} A = {:<20}\n", cluster, one.account)
             : fmt::format("  C = {:<10} A = {:<20} U = {:<9}\n", cluster, one.account, one.user);
}

Result<Edited> modify_qos(AccountBook& book, const Meant& chosen,
                          const std::vector<EditWord>& set) {
  Edited edited;
  for (api::QosInfo& qos : book.qos) {
    if (!chosen.names.empty() && std::ranges::find(chosen.names, qos.name) == chosen.names.end()) {
      continue;
    }
    for (const EditWord& word : set) {
      if (!TRY(apply(qos_settings(), qos, word))) return unknown(Entity::qos, word);
    }
    edited.text += fmt::format("  {}\n", qos.name);
    edited.changed = true;
  }
  edited.text = edited.changed ? " Modified qos...\n" + edited.text : " Nothing modified\n";
  return edited;
}

// What users or accounts have themselves, and what their associations have.
template <class Record>
Result<Edited> modify_records(AccountBook& book, Entity entity, std::vector<Record>& records,
                              std::span<const Setting<Record>> settings, const Meant& chosen,
                              const std::vector<EditWord>& set, const std::string& cluster) {
  std::vector<EditWord> own;
  std::vector<EditWord> of_associations;
  for (const EditWord& word : set) {
    const bool parent = entity == Entity::user && is_key(word.key, {"parent"});
    if (find_setting(settings, word.key) != nullptr) {
      own.push_back(word);
    } else if (!parent && find_setting(association_settings(), word.key) != nullptr) {
      of_associations.push_back(word);
    } else {
      return unknown(entity, word);
    }
  }
  Edited edited;
  const auto& names = entity == Entity::user ? chosen.users : chosen.accounts;
  std::string lines;
  for (Record& record : records) {
    if (own.empty() || (!names.empty() && std::ranges::find(names, record.name) == names.end())) {
      continue;
    }
    for (const EditWord& word : own) (void)TRY(apply(settings, record, word));
    lines += fmt::format("  {}\n", record.name);
  }
  const std::string_view what = entity == Entity::user ? "user" : "account";
  if (!lines.empty()) edited.text += fmt::format(" Modified {}s...\n{}", what, lines);
  lines.clear();
  // The newest first, as Slurm numbers them.
  for (auto one = book.associations.rbegin(); one != book.associations.rend(); ++one) {
    if (of_associations.empty() || !is_chosen(*one, entity, chosen)) continue;
    for (const EditWord& word : of_associations) {
      (void)TRY(apply(association_settings(), *one, word));
    }
    lines += association_line(*one, cluster);
  }
  if (!lines.empty()) edited.text += fmt::format(" Modified {} associations...\n{}", what, lines);
  edited.changed = !edited.text.empty();
  if (!edited.changed) edited.text = " Nothing modified\n";
  return edited;
}

Result<void> need_names(Entity entity, const Meant& chosen, bool adds) {
  const bool some = entity == Entity::qos    ? !chosen.names.empty()
                    : entity == Entity::user ? !chosen.users.empty()
                                             : !chosen.accounts.empty();
  if (some) return {};
  if (!adds) {
    return fail(Error::Code::invalid_argument, " No conditions given to remove, not executing.");
  }
  return fail(Error::Code::invalid_argument, " Need name of {} to add.",
              entity == Entity::qos    ? "qos"
              : entity == Entity::user ? "user"
                                       : "account");
}

Result<void> check_editable(Entity entity) {
  if (entity == Entity::qos || entity == Entity::user || entity == Entity::account) return {};
  return fail(Error::Code::unsupported,
              " This machine is the only cluster, and its resources are what they are: accounts, "
              "users and qos can be changed.");
}

}  // namespace

EditWords parse_edit_words(const std::vector<std::string_view>& words, bool set_first) {
  EditWords parsed;
  auto* into = set_first ? &parsed.set : &parsed.where;
  for (const std::string_view word : words) {
    if (equals_ignoring_case(word, "where")) {
      into = &parsed.where;
      continue;
    }
    if (equals_ignoring_case(word, "set")) {
      into = &parsed.set;
      continue;
    }
    const auto equals = word.find('=');
    if (equals == word.npos) {
      into->push_back({"", "", std::string(word)});
      continue;
    }
    const bool change = equals > 0 && (word[equals - 1] == '+' || word[equals - 1] == '-');
    std::string_view value = word.substr(equals + 1);
    if (value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0]) {
      value = value.substr(1, value.size() - 2);
    }
    const std::size_t end = change ? equals - 1 : equals;
    into->push_back({std::string(word.substr(0, end)),
                     std::string(word.substr(end, equals + 1 - end)), std::string(value)});
  }
  return parsed;
}

Result<Edited> add_to_book(AccountBook& book, Entity entity, const EditWords& words,
                           const std::string& cluster) {
  TRY(check_editable(entity));
  std::vector<EditWord> rest;
  Meant chosen = find_meant(entity, words.set, cluster, rest);
  TRY(need_names(entity, chosen, true));
  if (!chosen.here) return Edited{" Nothing new added.\n", false};
  switch (entity) {
    case Entity::account:
      return add_accounts(book, chosen, rest, cluster);
    case Entity::user:
      return add_users(book, std::move(chosen), rest, cluster);
    default:
      return add_qos(book, chosen, rest);
  }
}

Result<Edited> modify_book(AccountBook& book, Entity entity, const EditWords& words,
                           const std::string& cluster) {
  TRY(check_editable(entity));
  std::vector<EditWord> rest;
  const Meant chosen = find_meant(entity, words.where, cluster, rest);
  if (!rest.empty()) return unknown(entity, rest.front());
  if (words.set.empty()) {
    return fail(Error::Code::invalid_argument, " You didn't give me anything to set");
  }
  if (!chosen.here) return Edited{" Nothing modified\n", false};
  switch (entity) {
    case Entity::account:
      return modify_records(book, entity, book.accounts, account_settings(), chosen, words.set,
                            cluster);
    case Entity::user:
      return modify_records(book, entity, book.users, user_settings(), chosen, words.set, cluster);
    default:
      return modify_qos(book, chosen, words.set);
  }
}

Result<Edited> delete_from_book(AccountBook& book, Entity entity, const EditWords& words,
                                const std::string& cluster) {
  TRY(check_editable(entity));
  std::vector<EditWord> rest;
  const Meant chosen = find_meant(entity, words.where, cluster, rest);
  if (!rest.empty()) return unknown(entity, rest.front());
  const bool whose_account = entity == Entity::user && !chosen.accounts.empty();
  if (!whose_account) TRY(need_names(entity, chosen, false));
  Edited edited{" Nothing deleted\n", false};
  if (!chosen.here) return edited;
  std::string lines;
  if (entity == Entity::qos) {
    std::erase_if(book.qos, [&](const api::QosInfo& qos) {
      if (std::ranges::find(chosen.names, qos.name) == chosen.names.end()) return false;
      lines += fmt::format("  {}\n", qos.name);
      for (AssociationInfo& one : book.associations) {
        std::erase(one.qos, qos.name);
        if (one.default_qos == qos.name) one.default_qos.clear();
      }
      return true;
    });
    if (!lines.empty()) edited = {" Deleting QOS(s)...\n" + lines, true};
    return edited;
  }
  if (entity == Entity::account) {
    for (const std::string& name : chosen.accounts) {
      const auto below = std::ranges::find(book.associations, name, &AssociationInfo::parent);
      if (below != book.associations.end()) {
        return fail(Error::Code::failed_state,
                    " The account '{}' has the account '{}' below it: delete that first.", name,
                    below->account);
      }
    }
  }
  std::erase_if(book.associations, [&](const AssociationInfo& one) {
    const auto in = [](const std::vector<std::string>& wanted, const std::string& name) {
      return wanted.empty() || std::ranges::find(wanted, name) != wanted.end();
    };
    const bool goes = entity == Entity::account ? in(chosen.accounts, one.account)
                                                : !one.user.empty() && in(chosen.users, one.user) &&
                                                      in(chosen.accounts, one.account);
    if (goes && whose_account) {
      lines += fmt::format("  C = {:<10} A = {:<10} U = {:<9}\n", cluster, one.account, one.user);
    }
    return goes;
  });
  // Whoever is in no account any more is gone; else he has another one to begin with.
  std::string users;
  std::erase_if(book.users, [&](api::AccountUserInfo& user) {
    if (find_association(book, user.default_account, user.name) != nullptr) return false;
    const auto other = std::ranges::find(book.associations, user.name, &AssociationInfo::user);
    if (other != book.associations.end()) {
      user.default_account = other->account;
      return false;
    }
    users += fmt::format("  {}\n", user.name);
    return true;
  });
  if (entity == Entity::account) {
    std::erase_if(book.accounts, [&](const api::AccountInfo& account) {
      if (std::ranges::find(chosen.accounts, account.name) == chosen.accounts.end()) return false;
      lines += fmt::format("  {}\n", account.name);
      return true;
    });
    if (!lines.empty()) edited = {" Deleting accounts...\n" + lines, true};
  } else if (whose_account && !lines.empty()) {
    edited = {" Deleting user associations...\n" + lines, true};
  } else if (!users.empty()) {
    edited = {" Deleting users...\n" + users, true};
  }
  return edited;
}

}  // namespace aliquot::cli
