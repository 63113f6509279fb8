// squeue with ten thousand jobs in the queue: reading the daemon's answer, and printing the table.
#include <benchmark/benchmark.h>

#include "api/json.hpp"
#include "cli/view/samples.hpp"
#include "cli/view/squeue_fields.hpp"
#include "cli/view/squeue_print.hpp"

namespace aliquot::cli {
namespace {

api::JobList queue(std::int64_t count) {
  api::JobList list;
  for (std::int64_t id = 1; id <= count; ++id) {
    list.jobs.push_back(id % 50 == 0 ? samples::running(id, "train")
                                     : samples::job(id, "train", "Priority"));
    list.jobs.back().priority = id % 977;
  }
  return list;
}

void read(benchmark::State& state) {
  const auto text = api::to_json(queue(state.range(0)));
  for ([[maybe_unused]] auto turn : state) {
    auto list = api::from_json<api::JobList>(text);
    benchmark::DoNotOptimize(list);
  }
  state.counters["bytes"] = static_cast<double>(text.size());
}

void format(benchmark::State& state) {
  const auto list = queue(state.range(0));
  SqueueView view;
  view.format = kSqueueFormat;
  view.context.now = samples::kNow;
  for ([[maybe_unused]] auto turn : state) {
    state.PauseTiming();
    auto jobs = list.jobs;
    state.ResumeTiming();
    auto text = format_squeue(jobs, view);
    benchmark::DoNotOptimize(text);
  }
}

BENCHMARK(read)->Name("squeue/read")->Arg(10'000)->Unit(benchmark::kMillisecond);
BENCHMARK(format)->Name("squeue/format")->Arg(10'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace aliquot::cli
