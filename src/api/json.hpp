// JSON to and from the API's types, field by field under the same names. Unknown fields are
// ignored, missing ones keep their defaults, a field of the wrong type is an error that names it.
// In a JobList, which may be long, fields that have their default are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/accounts.hpp"
#include "api/inspection.hpp"
#include "api/types.hpp"
#include "base/result.hpp"

namespace aliquot::api {

template <class T>
std::string to_json(const T& value);

template <class T>
Result<T> from_json(std::string_view text);

// Sets the fields that `text` has and leaves the others; on error nothing has changed. For JobSpec.
template <class T>
Result<void> update_from_json(T& value, std::string_view text);

// Every text in it as base/text's make_plain() writes it: for values whose texts are shown, whoever
// wrote them.
template <class T>
void make_plain(T& value);

// A text as JSON has it, with its quotes.
std::string json_text(std::string_view text);
// A job as a list of the queue shows it: without what has its default, nor what no table has.
std::string brief_json(const JobInfo& job);

// {"jobs": [...], "next": 4711}
struct JobList {
  std::vector<JobInfo> jobs;
  // There is more: asked again with `after` being this, the list goes on. What ends meanwhile may
  // come twice, the latest last.
  std::optional<std::int64_t> next = {};
};

// The same text as to_json(JobList), job by job, without a list of all of them in memory.
class JobListWriter {
 public:
  // Brief: without command, files, comment, dependencies and sentences, which a table of the queue
  // does not show.
  explicit JobListWriter(std::size_t expected, bool brief = false);
  void add(const JobInfo& job);
  std::string take(std::optional<std::int64_t> next = {});

 private:
  std::string text_;
  bool brief_;
  bool first_ = true;
};

}  // namespace aliquot::api
