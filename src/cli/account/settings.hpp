// What sacctmgr can set of a QOS, an account, a user and an association: one table each, for
// reading `Key=Value`, for saying what was set, and for the columns of `show`.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/accounts.hpp"
#include "base/result.hpp"

namespace aliquot::cli {

// `Key=Value`, `Key+=Value`, `Key-=Value`.
enum class Assign { set, add, remove };

template <class Record>
struct Setting {
  std::string_view name;               // as Slurm prints it
  std::vector<std::string_view> also;  // other spellings
  std::function<Result<void>(Record&, Assign, std::string_view)> read;
  std::function<std::string(const Record&)> show;
};

// Names may be cut short to what is still one's alone, from three letters on. nullptr: no such one.
template <class Record>
const Setting<Record>* find_setting(std::span<const Setting<Record>> settings,
                                    std::string_view name);

std::span<const Setting<api::QosInfo>> qos_settings();
std::span<const Setting<api::AccountInfo>> account_settings();
std::span<const Setting<api::AccountUserInfo>> user_settings();
std::span<const Setting<api::AssociationInfo>> association_settings();

std::string join(const std::vector<std::string>& words);

}  // namespace aliquot::cli
