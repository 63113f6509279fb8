// Accounts, users and qualities of service, as sacctmgr keeps them: which account and QOS a job is
// under, and who may change them. What they allow is counted by Quotas (quotas.hpp). None of it is
// needed: without any account everybody has the QOS `normal`, and -A is a label.
//
// The book lies in State, and as one text in the record.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/accounts.hpp"
#include "engine/state.hpp"

namespace aliquot::engine {

inline constexpr std::string_view kNormalQos = "normal";
inline constexpr std::string_view kRootAccount = "root";

// As it is before anybody has changed it.
api::AccountBook first_book();
// What is wrong with it: a name that is none, somebody who is not there, a circle.
Answer<void> check_book(const api::AccountBook& book);

const api::QosInfo* find_qos(const api::AccountBook& book, std::string_view name);
const api::AssociationInfo* find_association(const api::AccountBook& book, std::string_view account,
                                             std::string_view user);
// The user's association with the account, the account's own, and so on up to the root. Without an
// account: the root alone.
std::vector<const api::AssociationInfo*> chain_of(const api::AccountBook& book,
                                                  std::string_view account, std::string_view user);
// The nearest in the chain that says something.
template <class T>
std::optional<T> nearest(const std::vector<const api::AssociationInfo*>& chain,
                         std::optional<T> api::AssociationInfo::*member) {
  for (const api::AssociationInfo* one : chain) {
    if (one->*member) return one->*member;
  }
  return std::nullopt;
}
// The QOS that a job is under.
const api::QosInfo* qos_of(const api::AccountBook& book, const Job& job);

// The longest that a job may run under its QOS, its partition's and its association.
std::optional<Millis> max_wall(const api::AccountBook& book, const Job& job,
                               std::string_view partition_qos);
// What becomes of it in this partition where those of a higher tier need its room: what its QOS
// says, else the partition.
PreemptMode preempt_mode(const api::AccountBook& book, const Job& job, const Partition& partition);

class Accounts {
 public:
  explicit Accounts(State& state) : state_(state) {}

  Result<void> read();  // from the record
  // Takes a new book instead, if it was made from the one there is.
  Answer<void> replace(const Caller& caller, api::AccountBook book);
  // Fills in the account and the QOS of a job that names none, or refuses what it names.
  Answer<void> assign(const Caller& caller, Job& job) const;
  // Whether its user, account and QOS may have so many more jobs in the queue.
  Answer<void> check_submit(const Job& job, std::int64_t more) const;
  // Its account or QOS has gone since.
  [[nodiscard]] std::optional<Reason> barred(const Job& job) const;

 private:
  State& state_;
};

}  // namespace aliquot::engine
