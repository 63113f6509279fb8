#include "cli/account/settings.hpp"

#include <algorithm>

#include "base/slurm_time.hpp"
#include "base/text.hpp"
#include "cli/account/tres_text.hpp"

namespace aliquot::cli {
namespace {

Result<void> only_set(Assign how) {
  if (how == Assign::set) return {};
  return fail(Error::Code::invalid_argument, "only lists take += and -=");
}

// -1 takes the limit away.
template <class Record>
Setting<Record> count_of(std::string_view name, std::vector<std::string_view> also,
                         std::optional<std::int64_t> Record::*member) {
  return {name, std::move(also),
          [member](Record& record, Assign how, std::string_view text) -> Result<void> {
            TRY(only_set(how));
            const auto number = parse_digits(text);
            if (!number && text != "-1") {
              return fail(Error::Code::invalid_argument, "{} is no number", quote(text));
            }
            record.*member = number;
            return {};
          },
          [member](const Record& record) {
            return record.*member ? std::to_string(*(record.*member)) : "";
          }};
}

template <class Record>
Setting<Record> tres_of(std::string_view name, std::vector<std::string_view> also,
                        api::TresLimit Record::*member) {
  return {name, std::move(also),
          [member](Record& record, Assign how, std::string_view text) -> Result<void> {
            TRY(only_set(how));
            return read_tres(text, record.*member);
          },
          [member](const Record& record) { return format_tres(record.*member); }};
}

template <class Record>
Setting<Record> wall_of(std::string_view name, std::vector<std::string_view> also,
                        std::optional<std::int64_t> Record::*member) {
  return {name, std::move(also),
          [member](Record& record, Assign how, std::string_view text) -> Result<void> {
            TRY(only_set(how));
            const auto limit = TRY(parse_time_limit(text));
            record.*member =
                limit.unlimited() ? std::nullopt : std::optional(limit.length->value());
            return {};
          },
          [member](const Record& record) {
            return record.*member ? format_duration(Millis(*(record.*member)), TimeStyle::scontrol)
                                  : "";
          }};
}

template <class Record>
Setting<Record> text_of(std::string_view name, std::vector<std::string_view> also,
                        std::string Record::*member, bool lower = false) {
  return {name, std::move(also),
          [member, lower](Record& record, Assign how, std::string_view text) -> Result<void> {
            TRY(only_set(how));
            record.*member = lower ? to_lower(text) : std::string(text);
            return {};
          },
          [member](const Record& record) { return record.*member; }};
}

template <class Record>
Setting<Record> list_of(std::string_view name, std::vector<std::string_view> also,
                        std::vector<std::string> Record::*member) {
  return {name, std::move(also),
          [member](Record& record, Assign how, std::string_view text) -> Result<void> {
            auto& words = record.*member;
            // `QOS=+high` is another way of Slurm's to say `QOS+=high`.
            if (how == Assign::set && text.starts_with('+')) how = Assign::add;
            if (how == Assign::set && text.starts_with('-')) how = Assign::remove;
            if (how == Assign::set) words.clear();
            for (std::string_view word : split(text, ',')) {
              if (word.starts_with('+') || word.starts_with('-')) word.remove_prefix(1);
              if (word.empty()) continue;
              std::erase(words, word);
              if (how != Assign::remove) words.emplace_back(word);
            }
            std::ranges::sort(words);
            return {};
          },
          [member](const Record& record) { return join(record.*member); }};
}

template <class Record>
Setting<Record> number_of(std::string_view name, std::vector<std::string_view> also,
                          std::int64_t Record::*member) {
  return {name, std::move(also),
          [member](Record& record, Assign how, std::string_view text) -> Result<void> {
            TRY(only_set(how));
            const auto value = parse_digits(text);
            if (!value) return fail(Error::Code::invalid_argument, "{} is no number", quote(text));
            record.*member = *value;
            return {};
          },
          [member](const Record& record) { return std::to_string(record.*member); }};
}

Result<void> read_preempt_mode(api::QosInfo& qos, Assign how, std::string_view text) {
  TRY(only_set(how));
  for (const std::string_view mode : {"OFF", "REQUEUE", "CANCEL", "cluster"}) {
    if (!equals_ignoring_case(text, mode)) continue;
    qos.preempt_mode = mode == "cluster" ? "" : std::string(mode);
    return {};
  }
  return fail(Error::Code::invalid_argument,
              "{} is none of OFF, REQUEUE, CANCEL and cluster, which is as the partition says",
              quote(text));
}

Result<void> read_flags(api::QosInfo& qos, Assign how, std::string_view text) {
  if (how == Assign::set) qos.deny_on_limit = false;
  for (const std::string_view word : split(text, ',')) {
    if (word.empty() || word == "-1") continue;
    if (!equals_ignoring_case(word, "DenyOnLimit")) {
      return fail(Error::Code::invalid_argument, "{} is no flag of this engine: there is {}",
                  quote(word), "DenyOnLimit");
    }
    qos.deny_on_limit = how != Assign::remove;
  }
  return {};
}

}  // namespace

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

template <class Record>
const Setting<Record>* find_setting(std::span<const Setting<Record>> settings,
                                    std::string_view name) {
  const Setting<Record>* found = nullptr;
  for (const auto& one : settings) {
    for (std::size_t i = 0; i <= one.also.size(); ++i) {
      const std::string_view spelling = i == 0 ? one.name : one.also[i - 1];
      if (equals_ignoring_case(spelling, name)) return &one;
      const bool begins = name.size() >= 3 && name.size() < spelling.size() &&
                          equals_ignoring_case(spelling.substr(0, name.size()), name);
      if (!begins || found == &one) continue;
      if (found != nullptr) return nullptr;
      found = &one;
    }
  }
  return found;
}
template const Setting<api::QosInfo>* find_setting(std::span<const Setting<api::QosInfo>>,
                                                   std::string_view);
template const Setting<api::AccountInfo>* find_setting(std::span<const Setting<api::AccountInfo>>,
                                                       std::string_view);
template const Setting<api::AccountUserInfo>* find_setting(
    std::span<const Setting<api::AccountUserInfo>>, std::string_view);
template const Setting<api::AssociationInfo>* find_setting(
    std::span<const Setting<api::AssociationInfo>>, std::string_view);

// In the order in which Slurm tells what was set.
std::span<const Setting<api::QosInfo>> qos_settings() {
  using Qos = api::QosInfo;
  static const std::vector<Setting<Qos>> all{
      text_of("Description", {}, &Qos::description),
      {"Flags",
       {},
       read_flags,
       [](const Qos& qos) { return std::string(qos.deny_on_limit ? "DenyOnLimit" : ""); }},
      tres_of("GrpTRES", {}, &Qos::grp_tres),
      count_of("GrpJobs", {}, &Qos::grp_jobs),
      count_of("GrpSubmitJobs", {"GrpSubmit"}, &Qos::grp_submit),
      tres_of("MaxTRESPerJob", {"MaxTRES", "MaxTRESPJ"}, &Qos::max_tres),
      tres_of("MaxTRESPerUser", {"MaxTRESPU"}, &Qos::max_tres_per_user),
      count_of("MaxJobsPerUser", {"MaxJobsPU", "MaxJobs"}, &Qos::max_jobs_per_user),
      count_of("MaxSubmitJobsPerUser", {"MaxSubmitPU", "MaxSubmitJobsPU", "MaxSubmitJobs"},
               &Qos::max_submit_per_user),
      wall_of("GraceTime", {}, &Qos::grace_ms),
      wall_of("MaxWall", {"MaxWallDurationPerJob", "MaxWallDuration"}, &Qos::max_wall_ms),
      {"PreemptMode",
       {},
       read_preempt_mode,
       [](const Qos& qos) {
         return qos.preempt_mode.empty() ? std::string("cluster") : to_lower(qos.preempt_mode);
       }},
      number_of("Priority", {}, &Qos::priority),
  };
  return all;
}

std::span<const Setting<api::AccountInfo>> account_settings() {
  static const std::vector<Setting<api::AccountInfo>> all{
      text_of("Description", {}, &api::AccountInfo::description),
      text_of("Organization", {}, &api::AccountInfo::organization),
  };
  return all;
}

std::span<const Setting<api::AccountUserInfo>> user_settings() {
  static const std::vector<Setting<api::AccountUserInfo>> all{
      text_of("DefaultAccount", {"DefAccount", "DefAcct"}, &api::AccountUserInfo::default_account,
              true),
  };
  return all;
}

std::span<const Setting<api::AssociationInfo>> association_settings() {
  using Association = api::AssociationInfo;
  static const std::vector<Setting<Association>> all{
      number_of("Fairshare", {"Shares", "Share"}, &Association::share),
      tres_of("GrpTRES", {}, &Association::grp_tres),
      count_of("GrpJobs", {}, &Association::grp_jobs),
      count_of("GrpSubmitJobs", {"GrpSubmit"}, &Association::grp_submit),
      tres_of("MaxTRES", {"MaxTRESPerJob", "MaxTRESPJ"}, &Association::max_tres),
      count_of("MaxJobs", {}, &Association::max_jobs),
      count_of("MaxSubmitJobs", {"MaxSubmit"}, &Association::max_submit),
      wall_of("MaxWall", {"MaxWallDurationPerJob", "MaxWallDuration"}, &Association::max_wall_ms),
      text_of("Parent", {}, &Association::parent, true),
      list_of("QOS", {"QosLevel"}, &Association::qos),
      text_of("DefaultQOS", {"DefQOS"}, &Association::default_qos),
  };
  return all;
}

}  // namespace aliquot::cli
