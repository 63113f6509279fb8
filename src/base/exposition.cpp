#include "base/exposition.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace aliquot {
namespace {

void append_escaped(std::string& out, std::string_view text, bool is_label) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || (is_label && c == '"')) out += '\\';
    out += c;
  }
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  // Whole numbers as such: bytes are read by people, too.
  constexpr double kExact = 9'007'199'254'740'992;
  if (std::abs(value) < kExact && std::trunc(value) == value) {
    return fmt::format("{}", static_cast<std::int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::string_view kind_word(Exposition::Kind kind) {
  switch (kind) {
    case Exposition::Kind::gauge:
      return "gauge";
    case Exposition::Kind::counter:
      return "counter";
    case Exposition::Kind::histogram:
      return "histogram";
  }
  return "untyped";
}

}  // namespace

void Histogram::add(double seconds) {
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    if (seconds <= limits_[i]) ++counts_[i];
  }
  ++count_;
  sum_ += seconds;
}

Histogram quick_histogram() {
  return Histogram({0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5});
}

Histogram patient_histogram() {
  constexpr double kHour = 3600;
  return Histogram({10, 60, 300, 900, 1800, kHour, 2 * kHour, 4 * kHour, 8 * kHour, 24 * kHour,
                    72 * kHour, 168 * kHour});
}

void Exposition::family(std::string_view name, Kind kind, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {} ", name);
  append_escaped(text_, help, false);
  text_ += fmt::format("\n# TYPE {} {}\n", name, kind_word(kind));
}

void Exposition::line(std::string_view suffix, Labels labels, Label last, double value) {
  text_ += name_;
  text_ += suffix;
  bool first = true;
  const auto add = [&](const Label& label) {
    if (label.second.empty()) return;
    text_ += first ? '{' : ',';
    first = false;
    text_ += label.first;
    text_ += "=\"";
    append_escaped(text_, label.second, true);
    text_ += '"';
  };
  for (const Label& label : labels) add(label);
  add(last);
  if (!first) text_ += '}';
  fmt::format_to(std::back_inserter(text_), " {}\n", number_text(value));
}

void Exposition::sample(Labels labels, double value) { line("", labels, {}, value); }

void Exposition::sample(const Histogram& histogram, std::initializer_list<Label> given) {
  const Labels labels(given.begin(), given.size());
  for (std::size_t i = 0; i < histogram.limits_.size(); ++i) {
    const std::string limit = number_text(histogram.limits_[i]);
    line("_bucket", labels, {"le", limit}, static_cast<double>(histogram.counts_[i]));
  }
  line("_bucket", labels, {"le", "+Inf"}, static_cast<double>(histogram.count_));
  line("_sum", labels, {}, histogram.sum_);
  line("_count", labels, {}, static_cast<double>(histogram.count_));
}

}  // namespace aliquot
