// Who may hold how much, as sacctmgr keeps it: qualities of service, accounts, users, and the
// associations of the two. Plain values, as types.hpp has them. The daemon keeps one AccountBook
// and takes a new one as a whole; `version` says which one it was made from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aliquot::api {

// Absent: no limit. GPUs in 1/10,000, so that a share counts as its part; memory in bytes.
struct TresLimit {
  std::optional<std::int64_t> gpus = {};
  std::optional<std::int64_t> cpus = {};
  std::optional<std::int64_t> memory = {};
  friend bool operator==(const TresLimit&, const TresLimit&) = default;
};

struct QosInfo {
  std::string name = {};
  std::string description = {};
  std::int64_t priority = 0;
  bool deny_on_limit = false;  // what breaks a limit on one job alone is refused, and does not wait
  std::string preempt_mode = {};  // OFF, REQUEUE, CANCEL; empty: the partition's
  std::optional<std::int64_t> grace_ms = {};
  TresLimit max_tres = {};  // of one job
  std::optional<std::int64_t> max_wall_ms = {};
  TresLimit max_tres_per_user = {};
  std::optional<std::int64_t> max_jobs_per_user = {};
  std::optional<std::int64_t> max_submit_per_user = {};
  TresLimit grp_tres = {};  // of all its jobs together
  std::optional<std::int64_t> grp_jobs = {};
  std::optional<std::int64_t> grp_submit = {};
  friend bool operator==(const QosInfo&, const QosInfo&) = default;
};

struct AccountInfo {
  std::string name = {};
  std::string description = {};
  std::string organization = {};
  friend bool operator==(const AccountInfo&, const AccountInfo&) = default;
};

struct AccountUserInfo {
  std::string name = {};
  std::string default_account = {};
  friend bool operator==(const AccountUserInfo&, const AccountUserInfo&) = default;
};

// Of an account, or of a user in it.
struct AssociationInfo {
  std::string account = {};
  std::string user = {};    // empty: the account's own
  std::string parent = {};  // of an account's; empty: it is the root
  std::int64_t share = 1;
  TresLimit max_tres = {};  // of one job
  std::optional<std::int64_t> max_wall_ms = {};
  std::optional<std::int64_t> max_jobs = {};  // of one user in it
  std::optional<std::int64_t> max_submit = {};
  TresLimit grp_tres = {};  // of all below it together
  std::optional<std::int64_t> grp_jobs = {};
  std::optional<std::int64_t> grp_submit = {};
  std::vector<std::string> qos = {};  // that its jobs may have; empty: as the account above
  std::string default_qos = {};
  friend bool operator==(const AssociationInfo&, const AssociationInfo&) = default;
};

struct AccountBook {
  std::int64_t version = 0;
  std::vector<QosInfo> qos = {};
  std::vector<AccountInfo> accounts = {};
  std::vector<AccountUserInfo> users = {};
  std::vector<AssociationInfo> associations = {};
  friend bool operator==(const AccountBook&, const AccountBook&) = default;
};

}  // namespace aliquot::api
