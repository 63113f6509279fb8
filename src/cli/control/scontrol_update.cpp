#include "cli/control/scontrol_update.hpp"

#include <algorithm>
#include <array>

#include "base/size.hpp"
#include "base/slurm_time.hpp"
#include "base/text.hpp"
#include "cli/moment.hpp"
#include "cli/option_set.hpp"
#include "cli/view/json_writer.hpp"

namespace aliquot::cli {
namespace {

using Code = Error::Code;

// How a key's value becomes a field.
enum class Kind { text, number, limit, moment, size, flag, mail, yes_no };
struct Key {
  std::string_view name;
  std::string_view field;
  Kind kind;
};
constexpr auto kKeys = std::to_array<Key>({
    {"Account", "account", Kind::text},
    {"ArrayTaskThrottle", "array_throttle", Kind::number},
    {"Comment", "comment", Kind::text},
    {"CPUsPerTask", "cpus_per_task", Kind::number},
    {"Deadline", "deadline_ms", Kind::moment},
    {"Dependency", "dependency", Kind::text},
    {"ExcNodeList", "exclude", Kind::text},
    {"Features", "constraint", Kind::text},
    {"Gres", "gres", Kind::text},
    {"JobName", "name", Kind::text},
    {"MailType", "mail_type", Kind::mail},
    {"MailUser", "mail_user", Kind::text},
    {"MinMemoryNode", "memory", Kind::size},
    {"MinMemoryCPU", "memory_per_cpu", Kind::size},
    {"Name", "name", Kind::text},
    {"Nice", "nice", Kind::number},
    {"NumCPUs", "min_cpus", Kind::number},
    {"NumNodes", "nodes", Kind::number},
    {"NumTasks", "ntasks", Kind::number},
    {"OverSubscribe", "oversubscribe", Kind::yes_no},
    {"Partition", "partition", Kind::text},
    {"Priority", "priority", Kind::number},
    {"QOS", "qos", Kind::text},
    {"ReqNodeList", "nodelist", Kind::text},
    {"Requeue", "requeue", Kind::flag},
    {"ReservationName", "reservation", Kind::text},
    {"StartTime", "begin_ms", Kind::moment},
    {"StdErr", "std_err", Kind::text},
    {"StdIn", "std_in", Kind::text},
    {"StdOut", "std_out", Kind::text},
    {"TimeLimit", "time_limit_ms", Kind::limit},
    {"WorkDir", "work_dir", Kind::text},
    {"WCKey", "wckey", Kind::text},
    {"GpuMem", "gpu_mem", Kind::text},
    {"GpuShare", "gpu_share", Kind::text},
});

// Slurm takes the names of entities cut short, too: `job=7`.
bool names_entity(std::string_view key, std::string_view entity) {
  return key.size() >= 3 && key.size() <= entity.size() &&
         equals_ignoring_case(entity.substr(0, key.size()), key);
}

// Slurm takes keys cut short.
const Key* find_key(std::string_view name) {
  for (const auto& key : kKeys) {
    if (name.size() >= 3 && name.size() <= key.name.size() &&
        equals_ignoring_case(key.name.substr(0, name.size()), name)) {
      return &key;
    }
  }
  return nullptr;
}

Result<void> add_field(JsonWriter& json, const Key& key, std::string_view value, WallTime now) {
  switch (key.kind) {
    case Kind::text:
      json.field(key.field, value);
      return {};
    case Kind::mail:
      if (!OptionSet(SlurmCommand::sbatch).set("mail-type", value, Source::command_line)) {
        return fail(Code::invalid_argument, "Invalid MailType: {}", value);
      }
      json.field(key.field, value);
      return {};
    case Kind::yes_no:
      if (!equals_ignoring_case(value, "yes") && !equals_ignoring_case(value, "no")) break;
      json.field(key.field, equals_ignoring_case(value, "yes"));
      return {};
    case Kind::number:
    case Kind::flag: {
      const bool negative = value.starts_with('-');
      const auto number = parse_digits(negative ? value.substr(1) : value);
      if (!number) break;
      if (key.kind == Kind::flag) {
        json.field(key.field, *number != 0);
      } else {
        json.field(key.field, negative ? -*number : *number);
      }
      return {};
    }
    case Kind::limit: {
      const auto limit = parse_time_limit(value);
      if (!limit) return fail(Code::invalid_argument, "scontrol: error: Invalid TimeLimit value");
      if (limit->length) {
        json.field(key.field, limit->length->value());
      } else {
        json.key(key.field).null();
      }
      return {};
    }
    case Kind::moment: {
      const auto moment = parse_moment(value, now, Tense::past);
      if (!moment)
        return fail(Code::invalid_argument, "{}\nNo changes specified", no_moment(value));
      json.field(key.field, moment->ms());
      return {};
    }
    case Kind::size: {
      const auto size = parse_size(value);
      if (!size) break;
      json.field(key.field, size->value());
      return {};
    }
  }
  return fail(Code::invalid_argument, "{}Invalid {} value: {}",
              key.name == "Priority" ? "scontrol: error: " : "", key.name, value);
}

struct KeyValue {
  std::string_view key;
  std::string_view value;
};

Result<KeyValue> split_word(std::string_view word) {
  const auto equals = word.find('=');
  if (equals == word.npos || equals == 0) {
    return fail(Code::invalid_argument, "Invalid input: {}", word);
  }
  return KeyValue{word.substr(0, equals), word.substr(equals + 1)};
}

constexpr std::int64_t kMostGpuIndex = 1'000;

Result<NodeUpdate> parse_node(const std::vector<std::string_view>& words) {
  NodeUpdate update;
  bool stated = false;
  for (const auto text : words) {
    const auto [key, value] = TRY(split_word(text));
    if (names_entity(key, "NodeName")) {
      update.name = value;
    } else if (equals_ignoring_case(key, "Reason")) {
      update.reason = value;
    } else if (equals_ignoring_case(key, "Gpu") || equals_ignoring_case(key, "Gpus")) {
      for (const auto index : split(value, ',')) {
        const auto number = parse_digits(index);
        if (!number || *number > kMostGpuIndex) {
          return fail(Code::invalid_argument, "Invalid input: {}\nRequest aborted", text);
        }
        update.gpus.push_back(*number);
      }
    } else if (equals_ignoring_case(key, "State")) {
      stated = true;
      update.down = equals_ignoring_case(value, "down");
      update.drain = equals_ignoring_case(value, "drain") || equals_ignoring_case(value, "down");
      if (!update.drain && !equals_ignoring_case(value, "resume") &&
          !equals_ignoring_case(value, "idle") && !equals_ignoring_case(value, "undrain")) {
        return fail(
            Code::invalid_argument,
            "Invalid input: {}\nRequest aborted\n"
            "Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN\n"
            "Not all states are valid given a node's prior state\n"
            "scontrol: hint: here these are DRAIN DOWN RESUME IDLE UNDRAIN",
            text);
      }
    } else {
      return fail(Code::invalid_argument, "Invalid input: {}\nRequest aborted", text);
    }
  }
  if (!stated) return fail(Code::invalid_argument, "No changes specified");
  if (update.drain && update.reason.empty()) {
    return fail(Code::invalid_argument,
                "You must specify a reason when DOWNING or DRAINING a node. Request denied");
  }
  return update;
}

// `JobName=old TimeLimit=5`: where no number says which, the name does.
bool goes_by_name(const std::vector<std::string_view>& words) {
  const auto starts = [](std::string_view word, std::string_view entity) {
    return names_entity(word.substr(0, word.find('=')), entity);
  };
  return !words.empty() && starts(words[0], "JobName") && !starts(words[0], "JobId") &&
         std::ranges::none_of(words, [&](auto word) { return starts(word, "JobId"); });
}

Result<JobUpdate> parse_job(std::vector<std::string_view> words, WallTime now) {
  JobUpdate update;
  if (goes_by_name(words)) {
    update.of_name = TRY(split_word(words[0])).value;
    words.erase(words.begin());
  }
  JsonWriter json;
  json.begin_object();
  bool changed = false;
  for (const auto text : words) {
    // `Nice` alone means `Nice=100`.
    if (equals_ignoring_case(text, "Nice")) {
      json.field("nice", 100);
      changed = true;
      continue;
    }
    const auto [key, value] = TRY(split_word(text));
    if (names_entity(key, "JobId")) {
      for (const auto id : split_outside_brackets(value)) update.ids.emplace_back(id);
      continue;
    }
    const auto* known = find_key(key);
    if (known == nullptr) {
      return fail(Code::invalid_argument,
                  "Update of this parameter is not supported: {}\n"
                  "Request aborted",
                  text);
    }
    changed = true;
    if (known->kind == Kind::limit && (value.starts_with('+') || value.starts_with('-'))) {
      const auto change = parse_time_limit(value.substr(1));
      if (!change || !change->length) {
        return fail(Code::invalid_argument, "Invalid TimeLimit value: {}", value);
      }
      update.longer = value[0] == '+' ? *change->length : Millis(-change->length->value());
      continue;
    }
    TRY(add_field(json, *known, value, now));
  }
  if (!changed) return fail(Code::invalid_argument, "No changes specified");
  if (update.ids.empty() && update.of_name.empty())
    return fail(Code::invalid_argument, "No job specification provided");
  update.body = json.end_object().text();
  return update;
}

}  // namespace

Result<std::string> JobUpdate::body_for(std::optional<Millis> limit) const {
  if (!longer) return body;
  if (!limit) {
    return fail(Code::invalid_argument, "TimeLimit is UNLIMITED: write the new one in full");
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(limit->value(), longer->value(), &sum) || sum <= 0) {
    return fail(Code::invalid_argument,
                "TimeLimit decrement larger than current time limit ({} > {})",
                -longer->value() / 60'000, limit->value() / 60'000);
  }
  // Into the object, behind what is there.
  const auto fields = body.find_last_not_of(" \n", body.rfind('}') - 1);
  const bool none = body[fields] == '{';
  return fmt::format("{}{}\"time_limit_ms\":{}}}", body.substr(0, fields + 1), none ? "" : ",",
                     sum);
}

namespace {

// `jobid 7 timelimit 5` is `jobid=7 timelimit=5`; Nice may stand alone.
std::vector<std::string> joined(const std::vector<std::string_view>& words) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool whole =
        words[i].find('=') != words[i].npos || equals_ignoring_case(words[i], "Nice");
    const bool pair = !whole && i + 1 < words.size() && words[i + 1].find('=') == words[i].npos;
    all.push_back(pair ? fmt::format("{}={}", words[i], words[i + 1]) : std::string(words[i]));
    if (pair) ++i;
  }
  return all;
}

}  // namespace

Result<Update> parse_update(const std::vector<std::string_view>& given, WallTime now) {
  const auto texts = joined(given);
  const std::vector<std::string_view> words(texts.begin(), texts.end());
  Update update;
  for (const auto word : words) {
    const auto key = word.substr(0, word.find('='));
    if (names_entity(key, "NodeName")) {
      update.nodes.push_back(TRY(parse_node(words)));
      return update;
    }
    if (names_entity(key, "JobId") || goes_by_name(words)) {
      update.jobs.push_back(TRY(parse_job(words, now)));
      return update;
    }
    if (names_entity(key, "StepId")) {
      return fail(Code::invalid_argument, "slurm_update error: Invalid job id specified");
    }
    if (names_entity(key, "PartitionName")) {
      return fail(
          Code::invalid_argument,
          "slurm_update error: Invalid partition name specified\n"
          "scontrol: hint: partitions are changed in the settings: see [partition.NAME], and then "
          "'scontrol reconfigure'");
    }
  }
  return fail(Code::invalid_argument,
              "No valid entity in update command\n"
              "Input line must include \"NodeName\", \"PartitionName\", \"Reservation\", "
              "\"JobId\", or \"SlurmctldDebug\"");
}

}  // namespace aliquot::cli
