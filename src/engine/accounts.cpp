#include "engine/accounts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "api/json.hpp"
#include "base/text.hpp"
#include "engine/admission.hpp"

namespace aliquot::engine {
namespace {

constexpr const char* kAccountsNote = "accounts";
constexpr std::size_t kLongestName = 64;
constexpr std::int64_t kMostFairshare = 1'000'000;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name[0] != '-' &&
         std::ranges::none_of(name, [](char c) {
           const auto code = static_cast<unsigned char>(c);
           return code <= ' ' || code == 0x7f || c == ',' || c == '|' || c == '=' || c == '\'' ||
                  c == '"';
         });
}

// Whether an account other than the first one was ever added.
bool in_use(const api::AccountBook& book) { return book.accounts.size() > 1; }

const api::AccountInfo* find_account(const api::AccountBook& book, std::string_view name) {
  const auto found = std::ranges::find(book.accounts, name, &api::AccountInfo::name);
  return found == book.accounts.end() ? nullptr : &*found;
}

tl::unexpected<Refused> bad_book(std::string message) {
  return refuse(Why::bad_change, std::move(message));
}

template <class List, class Name>
Answer<void> check_names(const List& list, Name name, std::string_view what) {
  std::set<std::string_view> names;
  for (const auto& one : list) {
    const std::string& text = one.*name;
    if (!is_name(text)) {
      return bad_book(
          fmt::format("{} is no name for {}: up to {} letters without spaces, quotes, "
                      "',', '|' and '='",
                      quote(make_plain(text)), what, kLongestName));
    }
    if (!names.insert(text).second)
      return bad_book(fmt::format("there are two of {}", quote(text)));
  }
  return {};
}

Answer<void> check_amounts(std::initializer_list<std::optional<std::int64_t>> amounts) {
  for (const auto& amount : amounts) {
    if (amount && *amount < 0) return bad_book("a limit is less than nothing");
  }
  return {};
}

Answer<void> check_association(const api::AccountBook& book, const api::AssociationInfo& one) {
  if (find_account(book, one.account) == nullptr) {
    return bad_book(fmt::format("there is no account {}", quote(one.account)));
  }
  const bool known =
      one.user.empty() ||
      std::ranges::find(book.users, one.user, &api::AccountUserInfo::name) != book.users.end();
  if (!known) return bad_book(fmt::format("there is no user {}", quote(one.user)));
  if (one.share < 0 || one.share > kMostFairshare) {
    return bad_book(fmt::format("a share is from 0 to {}", kMostFairshare));
  }
  for (const std::string& qos : one.qos) {
    if (find_qos(book, qos) == nullptr) {
      return bad_book(fmt::format("there is no QOS {}", quote(qos)));
    }
  }
  const auto chain = chain_of(book, one.account, one.user);
  if (chain.empty() || chain.back()->account != kRootAccount) {
    return bad_book(fmt::format("the account {} is not below the root", quote(one.account)));
  }
  if (!one.default_qos.empty() && find_qos(book, one.default_qos) == nullptr) {
    return bad_book(fmt::format("there is no QOS {}", quote(one.default_qos)));
  }
  return check_amounts({one.max_tres.gpus, one.max_tres.cpus, one.max_tres.memory, one.max_wall_ms,
                        one.max_jobs, one.max_submit, one.grp_tres.gpus, one.grp_tres.cpus,
                        one.grp_tres.memory, one.grp_jobs, one.grp_submit});
}

// Which QOS the jobs of this chain may have.
const std::vector<std::string>* allowed_qos(const std::vector<const api::AssociationInfo*>& chain) {
  for (const api::AssociationInfo* one : chain) {
    if (!one->qos.empty()) return &one->qos;
  }
  return nullptr;
}

}  // namespace

api::AccountBook first_book() {
  api::AccountBook book;
  book.qos.push_back({.name = std::string(kNormalQos), .description = "Normal QOS default"});
  book.accounts.push_back({std::string(kRootAccount), "default root account", "root"});
  book.users.push_back({"root", std::string(kRootAccount)});
  book.associations.push_back({.account = std::string(kRootAccount), .qos = {"normal"}});
  book.associations.push_back({.account = std::string(kRootAccount), .user = "root"});
  return book;
}

Answer<void> check_book(const api::AccountBook& book) {
  TRY(check_names(book.qos, &api::QosInfo::name, "a QOS"));
  TRY(check_names(book.accounts, &api::AccountInfo::name, "an account"));
  TRY(check_names(book.users, &api::AccountUserInfo::name, "a user"));
  if (find_qos(book, kNormalQos) == nullptr || find_account(book, kRootAccount) == nullptr ||
      find_association(book, kRootAccount, "") == nullptr) {
    return bad_book("the QOS normal and the account root stay");
  }
  for (const api::QosInfo& qos : book.qos) {
    TRY(check_shown(qos.description));
    if (!qos.preempt_mode.empty() && !parse_preempt_mode(qos.preempt_mode)) {
      return bad_book(fmt::format("{} is no way to preempt", quote(make_plain(qos.preempt_mode))));
    }
    TRY(check_amounts({qos.priority, qos.max_tres.gpus, qos.max_tres.cpus, qos.max_tres.memory,
                       qos.max_wall_ms, qos.grace_ms, qos.max_tres_per_user.gpus,
                       qos.max_tres_per_user.cpus, qos.max_tres_per_user.memory,
                       qos.max_jobs_per_user, qos.max_submit_per_user, qos.grp_tres.gpus,
                       qos.grp_tres.cpus, qos.grp_tres.memory, qos.grp_jobs, qos.grp_submit}));
  }
  for (const api::AccountInfo& account : book.accounts) {
    TRY(check_shown(account.description));
    TRY(check_shown(account.organization));
    if (find_association(book, account.name, "") == nullptr) {
      return bad_book(fmt::format("the account {} has no association", quote(account.name)));
    }
  }
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const api::AssociationInfo& one : book.associations) {
    if (!seen.insert({one.account, one.user}).second) {
      return bad_book(fmt::format("{} is twice in {}", quote(one.user), quote(one.account)));
    }
    TRY(check_association(book, one));
  }
  for (const api::AccountUserInfo& user : book.users) {
    if (find_association(book, user.default_account, user.name) == nullptr) {
      return bad_book(fmt::format("the user {} is not in his default account {}", quote(user.name),
                                  quote(user.default_account)));
    }
  }
  return {};
}

const api::QosInfo* find_qos(const api::AccountBook& book, std::string_view name) {
  const auto found = std::ranges::find(book.qos, name, &api::QosInfo::name);
  return found == book.qos.end() ? nullptr : &*found;
}

const api::AssociationInfo* find_association(const api::AccountBook& book, std::string_view account,
                                             std::string_view user) {
  const auto found = std::ranges::find_if(book.associations, [&](const api::AssociationInfo& one) {
    return one.account == account && one.user == user;
  });
  return found == book.associations.end() ? nullptr : &*found;
}

std::vector<const api::AssociationInfo*> chain_of(const api::AccountBook& book,
                                                  std::string_view account, std::string_view user) {
  std::vector<const api::AssociationInfo*> chain;
  if (!user.empty()) {
    if (const auto* own = find_association(book, account, user)) chain.push_back(own);
  }
  const auto* above = find_association(book, account, "");
  if (above == nullptr) above = find_association(book, kRootAccount, "");
  // A circle ends, too.
  while (above != nullptr && chain.size() <= book.accounts.size() + 1) {
    chain.push_back(above);
    above = above->parent.empty() ? nullptr : find_association(book, above->parent, "");
  }
  return chain;
}

const api::QosInfo* qos_of(const api::AccountBook& book, const Job& job) {
  return find_qos(book, job.spec.qos.empty() ? kNormalQos : std::string_view(job.spec.qos));
}

Result<void> Accounts::read() {
  state_.book = first_book();
  const auto note = TRY(state_.store.note(kAccountsNote));
  if (note) state_.book = TRY(api::from_json<api::AccountBook>(*note));
  return {};
}

Answer<void> Accounts::replace(const Caller& caller, api::AccountBook book) {
  if (!state_.is_admin(caller)) return refuse(Why::access_denied, "only root may do this");
  if (book.version != state_.book.version) {
    return refuse(Why::try_again, "somebody else has changed the accounts meanwhile");
  }
  TRY(check_book(book));
  ++book.version;
  state_.require(state_.store.save_note(kAccountsNote, api::to_json(book)));
  state_.book = std::move(book);
  state_.schedule_needed = true;
  return {};
}

Answer<void> Accounts::assign(const Caller& caller, Job& job) const {
  const api::AccountBook& book = state_.book;
  const std::string& user = job.owner.user;
  std::string& account = job.spec.account;
  if (account.empty()) {
    const auto known = std::ranges::find(book.users, user, &api::AccountUserInfo::name);
    if (in_use(book) && known != book.users.end()) account = known->default_account;
  } else if (in_use(book)) {
    const bool member = find_association(book, account, user) != nullptr;
    const bool root = state_.is_admin(caller) && find_account(book, account) != nullptr;
    if (!member && !root) {
      return refuse(Why::bad_account,
                    fmt::format("{} is not in an account {}", user, quote(account)));
    }
  }
  const auto chain = chain_of(book, account, user);
  std::string& qos = job.spec.qos;
  const auto* allowed = allowed_qos(chain);
  if (qos.empty()) {
    for (const api::AssociationInfo* one : chain) {
      if (qos.empty()) qos = one->default_qos;
    }
    if (qos.empty() && allowed != nullptr &&
        std::ranges::find(*allowed, kNormalQos) == allowed->end()) {
      qos = allowed->front();
    }
    return {};
  }
  const bool open =
      allowed == nullptr ? qos == kNormalQos : std::ranges::find(*allowed, qos) != allowed->end();
  if (!open && !(state_.is_admin(caller) && find_qos(book, qos) != nullptr)) {
    return refuse(Why::bad_qos,
                  find_qos(book, qos) == nullptr
                      ? fmt::format("there is no QOS {}", quote(qos))
                      : fmt::format("{} may not use the QOS {}: an administrator lets him, with "
                                    "'sacctmgr modify user {} set qos+={}'",
                                    user, quote(qos), user, qos));
  }
  return {};
}

std::optional<Reason> Accounts::barred(const Job& job) const {
  const api::AccountBook& book = state_.book;
  if (in_use(book) && !job.spec.account.empty() &&
      find_account(book, job.spec.account) == nullptr) {
    return Reason::invalid_account;
  }
  if (qos_of(book, job) == nullptr) return Reason::invalid_qos;
  return std::nullopt;
}

std::optional<Millis> max_wall(const api::AccountBook& book, const Job& job,
                               std::string_view partition_qos) {
  std::optional<std::int64_t> most;
  const auto lower = [&](const std::optional<std::int64_t>& other) {
    if (other) most = std::min(most.value_or(*other), *other);
  };
  for (const auto* qos : {qos_of(book, job), find_qos(book, partition_qos)}) {
    if (qos != nullptr) lower(qos->max_wall_ms);
  }
  lower(nearest(chain_of(book, job.spec.account, job.owner.user),
                &api::AssociationInfo::max_wall_ms));
  return most ? std::optional(Millis(*most)) : std::nullopt;
}

PreemptMode preempt_mode(const api::AccountBook& book, const Job& job, const Partition& partition) {
  const auto* qos = qos_of(book, job);
  if (qos == nullptr || qos->preempt_mode.empty()) return partition.preempt;
  return parse_preempt_mode(qos->preempt_mode).value_or(partition.preempt);
}

Answer<void> Accounts::check_submit(const Job& job, std::int64_t more) const {
  const api::AccountBook& book = state_.book;
  const auto count = [&](const std::optional<std::int64_t>& most, auto counts) {
    std::int64_t jobs = 0;
    if (!most) return jobs;
    for (const auto& [id, other] : state_.jobs) {
      if (counts(other)) jobs += elements(other);
    }
    return jobs;
  };
  const auto check = [&](const std::optional<std::int64_t>& most, const std::string& whose,
                         std::int64_t jobs) -> Answer<void> {
    if (!most || jobs + more <= *most) return {};
    return refuse(Why::over_limit,
                  fmt::format("{} may have {} jobs that wait or run, and {}", whose, *most,
                              jobs == 0 ? "this is more" : fmt::format("has {}", jobs)));
  };
  const auto same_user = [&](const Job& other) { return other.owner.uid == job.owner.uid; };
  if (const auto* qos = qos_of(book, job)) {
    const auto same = [&](const Job& other) { return qos_of(book, other) == qos; };
    TRY(check(qos->grp_submit, "the QOS " + qos->name, count(qos->grp_submit, same)));
    const auto& each = qos->max_submit_per_user;
    TRY(check(each, job.owner.user + " in the QOS " + qos->name,
              count(each, [&](const Job& other) { return same_user(other) && same(other); })));
  }
  const auto chain = chain_of(book, job.spec.account, job.owner.user);
  const auto most = nearest(chain, &api::AssociationInfo::max_submit);
  TRY(check(most, job.owner.user, count(most, [&](const Job& other) {
              return same_user(other) && other.spec.account == job.spec.account;
            })));
  const bool group =
      std::ranges::any_of(chain, [](const auto* one) { return one->grp_submit.has_value(); });
  if (!group) return {};
  // Many jobs are of few associations: which is below which is looked up once for each.
  std::map<std::pair<std::string_view, std::string_view>, std::int64_t> own;
  for (const auto& [id, other] : state_.jobs) {
    own[{other.spec.account, other.owner.user}] += elements(other);
  }
  std::map<const api::AssociationInfo*, std::int64_t> below;
  for (const auto& [of, jobs] : own) {
    for (const auto* one : chain_of(book, of.first, of.second)) below[one] += jobs;
  }
  for (const api::AssociationInfo* one : chain) {
    TRY(check(one->grp_submit, one->user.empty() ? "the account " + one->account : one->user,
              below[one]));
  }
  return {};
}

}  // namespace aliquot::engine
