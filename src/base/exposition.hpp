// Figures in the text format that Prometheus reads: the one writer for all daemons. A family is
// begun once, with what it means, and its samples follow; labels without a value are left out.
// Nothing here knows which figures there are.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aliquot {

// How often something took how long, in buckets.
class Histogram {
 public:
  // In seconds, rising.
  explicit Histogram(std::vector<double> limits)
      : limits_(std::move(limits)), counts_(limits_.size(), 0) {}

  void add(double seconds);
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double sum() const { return sum_; }

 private:
  friend class Exposition;
  std::vector<double> limits_;
  std::vector<std::uint64_t> counts_;  // each with those below it
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

// For requests and decisions: from a quarter of a millisecond to five seconds.
Histogram quick_histogram();
// For waiting: from ten seconds to a week.
Histogram patient_histogram();

class Exposition {
 public:
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";
  enum class Kind : std::uint8_t { gauge, counter, histogram };
  using Label = std::pair<std::string_view, std::string_view>;
  using Labels = std::span<const Label>;

  void family(std::string_view name, Kind kind, std::string_view help);
  void sample(Labels labels, double value);
  void sample(std::initializer_list<Label> labels, double value) {
    sample(Labels(labels.begin(), labels.size()), value);
  }
  void sample(const Histogram& histogram, std::initializer_list<Label> labels = {});
  // A family with the one sample.
  void single(std::string_view name, Kind kind, std::string_view help, double value) {
    family(name, kind, help);
    sample({}, value);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void line(std::string_view suffix, Labels labels, Label last, double value);

  std::string text_;
  std::string name_;  // of the family
};

}  // namespace aliquot
