#include "node/launch.hpp"

#include <algorithm>
#include <array>
#include <boost/describe.hpp>
#include <boost/json.hpp>
#include <boost/mp11/algorithm.hpp>
#include <type_traits>

#include "base/text.hpp"

// What stands in the files, under these names: for reading and writing.
namespace aliquot::gpu {
BOOST_DESCRIBE_STRUCT(MpsPipe, (), (program, environment, folder))
}
namespace aliquot::node {
BOOST_DESCRIBE_STRUCT(ResourceLimit, (), (resource, soft, hard))
BOOST_DESCRIBE_STRUCT(EarlySignal, (), (number, before_s, batch_only))
BOOST_DESCRIBE_STRUCT(Launch, (),
                      (job_id, attempt, node, mark, uid, gid, groups, script, arguments,
                       environment, work_dir, std_in, std_out, std_err, append, umask, limits,
                       group, time_limit_ms, kill_wait_ms, signal, mps))
BOOST_DESCRIBE_STRUCT(ExitRecord, (),
                      (job_id, attempt, exit_code, exit_signal, reason, detail, start_ms, end_ms,
                       suspended_ms, user_cpu_ms, system_cpu_ms, max_rss, oom_kills, leftovers))

namespace {

namespace json = boost::json;

constexpr std::array<std::string_view, 5> kReasons = {"none", "timeout", "cancelled", "oom",
                                                      "launch_failed"};
constexpr std::string_view kWithin = "within=";  // milliseconds, of a cancel
constexpr std::array<std::string_view, 3> kTargets = {"steps", "batch", "all"};

// Calls field(name, value) for each of the record's fields.
template <class Field, class Record>
void list_fields(Field& field, Record& record) {
  using Fields =
      boost::describe::describe_members<std::remove_const_t<Record>, boost::describe::mod_public>;
  boost::mp11::mp_for_each<Fields>(
      [&](auto member) { field(member.name, record.*member.pointer); });
}

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
  void operator()(const char* name, T& out) {
    const auto* value = value_.get_object().if_contains(name);
    if (value == nullptr || value->is_null()) return;
    if (!read(*value, out) && wrong_.empty()) wrong_ = name;
  }

  [[nodiscard]] bool has(const char* name) const { return value_.get_object().contains(name); }

  [[nodiscard]] Result<void> finish() const {
    if (wrong_.empty()) return {};
    return fail(Error::Code::invalid_argument, "field '{}' is not of the right type", wrong_);
  }

 private:
  explicit Reader(json::value value) : value_(std::move(value)) {}

  template <class T>
  static bool read(const json::value& value, T& out) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_bool()) return false;
      out = value.get_bool();
      return true;
    } else if constexpr (std::is_integral_v<T>) {
      json::error_code error;
      out = value.to_number<T>(error);
      return !error;
    } else {
      if (!value.is_object()) return false;
      Reader reader(value);
      list_fields(reader, out);
      return reader.wrong_.empty();
    }
  }
  static bool read(const json::value& value, std::string& out) {
    if (!value.is_string()) return false;
    out = std::string(value.get_string());
    // C cannot hold it, and a name that ends early is another name.
    return out.find('\0') == std::string::npos;
  }
  template <class T>
  static bool read(const json::value& value, std::optional<T>& out) {
    return read(value, out.emplace());
  }
  template <class T>
  static bool read(const json::value& value, std::vector<T>& out) {
    if (!value.is_array()) return false;
    out.clear();
    for (const auto& element : value.get_array()) {
      if (!read(element, out.emplace_back())) return false;
    }
    return true;
  }
  static bool read(const json::value& value, GroupPaths& out) {
    if (!value.is_object()) return false;
    for (const auto& [controller, folder] : value.get_object()) {
      if (!read(folder, out.folders[std::string(controller)])) return false;
    }
    return true;
  }
  static bool read(const json::value& value, EndReason& out) {
    if (!value.is_string()) return false;
    const std::string_view word(value.get_string().data(), value.get_string().size());
    const auto* const reason = std::ranges::find(kReasons, word);
    if (reason == kReasons.end()) return false;
    out = static_cast<EndReason>(reason - kReasons.begin());
    return true;
  }

  json::value value_;
  std::string wrong_;
};

// An optional field that is absent is left out.
class Writer {
 public:
  template <class T>
  static json::object write(const T& record) {
    Writer writer;
    list_fields(writer, record);
    return std::move(writer.object_);
  }

  template <class T>
  void operator()(const char* name, const T& value) {
    object_[name] = make(value);
  }
  template <class T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) object_[name] = make(*value);
  }

 private:
  template <class T>
  static json::value make(const T& value) {
    if constexpr (std::is_integral_v<T>) {
      return value;
    } else {
      return write(value);
    }
  }
  static json::value make(const std::string& value) {
    return json::value(json::string_view(value));
  }
  static json::value make(EndReason reason) {
    return json::value(json::string_view(to_string(reason)));
  }
  static json::value make(const GroupPaths& group) {
    json::object object;
    for (const auto& [controller, folder] : group.folders) object[controller] = folder;
    return object;
  }
  template <class T>
  static json::value make(const std::vector<T>& values) {
    json::array array;
    array.reserve(values.size());
    for (const auto& value : values) array.push_back(make(value));
    return array;
  }

  json::object object_;
};

}  // namespace

std::string_view to_string(EndReason reason) { return kReasons[static_cast<std::size_t>(reason)]; }

std::string to_json(const Launch& launch) { return json::serialize(Writer::write(launch)); }

Result<Launch> launch_from_json(std::string_view text) {
  auto field = TRY(Reader::parse(text));
  Launch launch;
  list_fields(field, launch);
  TRY(field.finish());
  // Left out, these would mean root and an empty name.
  if (launch.job_id <= 0) return fail(Error::Code::invalid_argument, "no job_id");
  if (!field.has("uid")) return fail(Error::Code::invalid_argument, "no uid");
  if (!launch.script.starts_with('/')) {
    return fail(Error::Code::invalid_argument, "the script's path is not absolute");
  }
  return launch;
}

std::string to_json(const ExitRecord& record) { return json::serialize(Writer::write(record)); }

Result<ExitRecord> exit_from_json(std::string_view text) {
  auto field = TRY(Reader::parse(text));
  ExitRecord record;
  list_fields(field, record);
  TRY(field.finish());
  return record;
}

std::string to_line(const Command& command) {
  struct Writer {
    std::string operator()(const CancelCommand& cancel) const {
      std::string line = "cancel";
      if (cancel.patience) line += fmt::format(" {}{}", kWithin, *cancel.patience);
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
  if (verb == "cancel") {
    if (!rest.starts_with(kWithin)) return CancelCommand{std::string(rest)};
    const auto words = rest.substr(kWithin.size());
    const auto end = std::min(words.find(' '), words.size());
    if (const auto ms = parse_digits(words.substr(0, end))) {
      return CancelCommand{std::string(words.substr(std::min(end + 1, words.size()))), Millis(*ms)};
    }
  }
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
