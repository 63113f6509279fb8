#include "node/launch.hpp"

#include <array>
#include <boost/json.hpp>
#include <limits>
#include <type_traits>

#include "base/text.hpp"

namespace aliquot::node {
namespace {

namespace json = boost::json;

constexpr std::array<std::string_view, 5> kReasons = {"none", "timeout", "cancelled", "oom",
                                                      "launch_failed"};
constexpr std::array<std::string_view, 3> kTargets = {"steps", "batch", "all"};

// Reads fields out of an object; the first one of a wrong type is the error.
class Reader {
 public:
  static Result<Reader> parse(std::string_view text) {
    json::error_code error;
    json::parse_options options;
    options.allow_invalid_utf8 = true;  // file names and variables are bytes
    auto value = json::parse(text, error, {}, options);
    if (error) return fail(Error::Code::invalid_argument, "not JSON: {}", error.message());
    if (!value.is_object()) return fail(Error::Code::invalid_argument, "not an object");
    return Reader(std::move(value));
  }

  template <class T>
  void operator()(const char* name, T* out) {
    const auto* value = value_.get_object().if_contains(name);
    if (value == nullptr || value->is_null()) return;
    if (!read(*value, out) && wrong_.empty()) wrong_ = name;
  }

  [[nodiscard]] Result<void> finish() const {
    if (wrong_.empty()) return {};
    return fail(Error::Code::invalid_argument, "field '{}' is not of the right type", wrong_);
  }

 private:
  explicit Reader(json::value value) : value_(std::move(value)) {}

  template <class T>
  static bool read(const json::value& value, T* out) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_bool()) return false;
      *out = value.get_bool();
      return true;
    } else {
      static_assert(std::is_integral_v<T>);
      json::error_code error;
      *out = value.to_number<T>(error);
      return !error;
    }
  }
  static bool read(const json::value& value, std::string* out) {
    if (!value.is_string()) return false;
    *out = std::string(value.get_string());
    // C cannot hold it, and a name that ends early is another name.
    return out->find('\0') == std::string::npos;
  }
  template <class T>
  static bool read(const json::value& value, std::optional<T>* out) {
    return read(value, &out->emplace());
  }
  template <class T>
  static bool read(const json::value& value, std::vector<T>* out) {
    if (!value.is_array()) return false;
    out->clear();
    for (const auto& element : value.get_array()) {
      if (!read(element, &out->emplace_back())) return false;
    }
    return true;
  }
  static bool read(const json::value& value, GroupPaths* out) {
    if (!value.is_object()) return false;
    for (const auto& [controller, folder] : value.get_object()) {
      if (!read(folder, &out->folders[std::string(controller)])) return false;
    }
    return true;
  }
  static bool read(const json::value& value, ResourceLimit* out) {
    return read_fields(value, [&](Reader& field) {
      field("resource", &out->resource);
      field("soft", &out->soft);
      field("hard", &out->hard);
    });
  }
  static bool read(const json::value& value, EarlySignal* out) {
    return read_fields(value, [&](Reader& field) {
      field("number", &out->number);
      field("before_s", &out->before_s);
      field("batch_only", &out->batch_only);
    });
  }
  static bool read(const json::value& value, gpu::MpsPipe* out) {
    return read_fields(value, [&](Reader& field) {
      field("program", &out->program);
      field("environment", &out->environment);
      field("folder", &out->folder);
    });
  }
  static bool read(const json::value& value, EndReason* out) {
    if (!value.is_string()) return false;
    for (std::size_t i = 0; i < kReasons.size(); ++i) {
      if (value.get_string() == kReasons[i]) {
        *out = static_cast<EndReason>(i);
        return true;
      }
    }
    return false;
  }
  template <class Fields>
  static bool read_fields(const json::value& value, const Fields& fields) {
    if (!value.is_object()) return false;
    Reader reader(value);
    fields(reader);
    return reader.wrong_.empty();
  }

  json::value value_;
  std::string wrong_;
};

json::array strings(const std::vector<std::string>& values) {
  json::array array;
  array.reserve(values.size());
  for (const auto& value : values) array.emplace_back(json::string_view(value));
  return array;
}

}  // namespace

std::string_view to_string(EndReason reason) { return kReasons[static_cast<std::size_t>(reason)]; }

std::string to_json(const Launch& launch) {
  json::object object;
  object["job_id"] = launch.job_id;
  object["attempt"] = launch.attempt;
  object["node"] = launch.node;
  object["mark"] = launch.mark;
  object["uid"] = launch.uid;
  object["gid"] = launch.gid;
  object["groups"] = json::array(launch.groups.begin(), launch.groups.end());
  object["script"] = launch.script;
  object["arguments"] = strings(launch.arguments);
  object["environment"] = strings(launch.environment);
  object["work_dir"] = launch.work_dir;
  object["std_in"] = launch.std_in;
  object["std_out"] = launch.std_out;
  object["std_err"] = launch.std_err;
  object["append"] = launch.append;
  object["umask"] = launch.umask;
  auto& limits = object["limits"].emplace_array();
  for (const auto& limit : launch.limits) {
    limits.push_back({{"resource", limit.resource}, {"soft", limit.soft}, {"hard", limit.hard}});
  }
  auto& group = object["group"].emplace_object();
  for (const auto& [controller, folder] : launch.group.folders) group[controller] = folder;
  if (launch.time_limit_ms) object["time_limit_ms"] = *launch.time_limit_ms;
  object["kill_wait_ms"] = launch.kill_wait_ms;
  if (launch.signal) {
    object["signal"] = {{"number", launch.signal->number},
                        {"before_s", launch.signal->before_s},
                        {"batch_only", launch.signal->batch_only}};
  }
  if (launch.mps) {
    object["mps"] = {{"program", launch.mps->program},
                     {"environment", strings(launch.mps->environment)},
                     {"folder", launch.mps->folder}};
  }
  return json::serialize(object);
}

Result<Launch> launch_from_json(std::string_view text) {
  auto field = TRY(Reader::parse(text));
  Launch launch;
  field("job_id", &launch.job_id);
  field("attempt", &launch.attempt);
  field("node", &launch.node);
  field("mark", &launch.mark);
  field("uid", &launch.uid);
  field("gid", &launch.gid);
  field("groups", &launch.groups);
  field("script", &launch.script);
  field("arguments", &launch.arguments);
  field("environment", &launch.environment);
  field("work_dir", &launch.work_dir);
  field("std_in", &launch.std_in);
  field("std_out", &launch.std_out);
  field("std_err", &launch.std_err);
  field("append", &launch.append);
  field("umask", &launch.umask);
  field("limits", &launch.limits);
  field("group", &launch.group);
  field("time_limit_ms", &launch.time_limit_ms);
  field("kill_wait_ms", &launch.kill_wait_ms);
  field("signal", &launch.signal);
  field("mps", &launch.mps);
  TRY(field.finish());
  // Left out, these would mean root and an empty name.
  if (launch.job_id <= 0) return fail(Error::Code::invalid_argument, "no job_id");
  if (text.find("\"uid\"") == std::string_view::npos) {
    return fail(Error::Code::invalid_argument, "no uid");
  }
  if (!launch.script.starts_with('/')) {
    return fail(Error::Code::invalid_argument, "the script's path is not absolute");
  }
  return launch;
}

std::string to_json(const ExitRecord& record) {
  return json::serialize(json::value{
      {"job_id", record.job_id},
      {"attempt", record.attempt},
      {"exit_code", record.exit_code},
      {"exit_signal", record.exit_signal},
      {"reason", json::string_view(to_string(record.reason))},
      {"detail", record.detail},
      {"start_ms", record.start_ms},
      {"end_ms", record.end_ms},
      {"suspended_ms", record.suspended_ms},
      {"user_cpu_ms", record.user_cpu_ms},
      {"system_cpu_ms", record.system_cpu_ms},
      {"max_rss", record.max_rss},
      {"oom_kills", record.oom_kills},
      {"leftovers", record.leftovers},
  });
}

Result<ExitRecord> exit_from_json(std::string_view text) {
  auto field = TRY(Reader::parse(text));
  ExitRecord record;
  field("job_id", &record.job_id);
  field("attempt", &record.attempt);
  field("exit_code", &record.exit_code);
  field("exit_signal", &record.exit_signal);
  field("reason", &record.reason);
  field("detail", &record.detail);
  field("start_ms", &record.start_ms);
  field("end_ms", &record.end_ms);
  field("suspended_ms", &record.suspended_ms);
  field("user_cpu_ms", &record.user_cpu_ms);
  field("system_cpu_ms", &record.system_cpu_ms);
  field("max_rss", &record.max_rss);
  field("oom_kills", &record.oom_kills);
  field("leftovers", &record.leftovers);
  TRY(field.finish());
  return record;
}

std::string to_line(const Command& command) {
  struct Writer {
    std::string operator()(const CancelCommand& cancel) const {
      std::string line = "cancel";
      if (!cancel.cause.empty()) line += " " + cancel.cause;
      for (char& c : line) {
        if (c == '\n' || c == '\0') c = ' ';
      }
      return line;
    }
    std::string operator()(const SignalCommand& signal) const {
      return fmt::format("signal {} {}", signal.number,
                         kTargets[static_cast<std::size_t>(signal.target)]);
    }
    std::string operator()(const SuspendCommand&) const { return "suspend"; }
    std::string operator()(const ResumeCommand&) const { return "resume"; }
    std::string operator()(const LimitCommand& limit) const {
      return limit.limit ? fmt::format("limit {}", *limit.limit) : "limit none";
    }
  };
  return std::visit(Writer{}, command) + "\n";
}

Result<Command> command_from_line(std::string_view line) {
  while (line.ends_with('\n')) line.remove_suffix(1);
  const auto space = line.find(' ');
  const auto verb = line.substr(0, space);
  const auto rest = space == std::string_view::npos ? std::string_view{} : line.substr(space + 1);
  if (verb == "cancel") return CancelCommand{std::string(rest)};
  if (verb == "suspend" && rest.empty()) return SuspendCommand{};
  if (verb == "resume" && rest.empty()) return ResumeCommand{};
  if (verb == "limit") {
    if (rest == "none") return LimitCommand{};
    if (const auto ms = parse_digits(rest)) return LimitCommand{Millis(*ms)};
  }
  if (verb == "signal") {
    const auto words = split(rest, ' ');
    const auto number = parse_digits(words[0]);
    if (words.size() == 2 && number && *number > 0 && *number <= 64) {
      for (std::size_t i = 0; i < kTargets.size(); ++i) {
        if (words[1] == kTargets[i]) {
          return SignalCommand{static_cast<int>(*number), static_cast<Target>(i)};
        }
      }
    }
  }
  return fail(Error::Code::invalid_argument, "no command: {}", quote(line));
}

}  // namespace aliquot::node
