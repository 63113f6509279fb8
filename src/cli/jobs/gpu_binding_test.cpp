#include "cli/jobs/gpu_binding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cli/jobs/gpu_counts.hpp"

namespace aliquot::cli {
namespace {

using Gpus = std::vector<std::size_t>;

std::vector<Gpus> bound(std::string_view text, std::size_t tasks, std::size_t gpus) {
  const auto binding = parse_gpu_binding(text);
  EXPECT_TRUE(binding) << text;
  std::vector<Gpus> all;
  for (std::size_t task = 0; task < tasks; ++task) all.push_back(*binding->gpus_of(task, gpus));
  return all;
}

TEST(GpuBinding, Single) {
  EXPECT_EQ(bound("single:2", 5, 2), (std::vector<Gpus>{{0}, {0}, {1}, {1}, {0}}));
}
TEST(GpuBinding, PerTask) {
  EXPECT_EQ(bound("per_task:2", 3, 4), (std::vector<Gpus>{{0, 1}, {2, 3}, {0, 1}}));
}
TEST(GpuBinding, Maps) {
  EXPECT_EQ(bound("map_gpu:0,1,0,1", 4, 2), (std::vector<Gpus>{{0}, {1}, {0}, {1}}));
  EXPECT_EQ(bound("verbose,map_gpu:1*2,0", 4, 2), (std::vector<Gpus>{{1}, {1}, {0}, {1}}));
  EXPECT_EQ(bound("mask_gpu:0x3,2", 2, 2), (std::vector<Gpus>{{0, 1}, {1}}));
}
TEST(GpuBinding, AllForEveryTask) {
  for (const auto* text : {"none", "closest", "verbose", "verbose,closest"}) {
    EXPECT_EQ(bound(text, 2, 2), (std::vector<Gpus>{{0, 1}, {0, 1}})) << text;
  }
}
TEST(GpuBinding, RefusesWhatItCannotRead) {
  for (const auto* text : {"foo", "map_gpu:", "map_gpu:0,x", "single:0", "single", "mask_gpu:g",
                           "verbosely", "", "map_gpu:0*0", "per_task:-1", "mask_gpu:0"}) {
    const auto binding = parse_gpu_binding(text);
    ASSERT_FALSE(binding) << text;
    EXPECT_EQ(binding.error().message, std::string("Invalid --gpu-bind argument: gpu:") + text);
  }
}
TEST(GpuBinding, AGpuThatTheStepDoesNotHave) {
  const auto gpus = parse_gpu_binding("map_gpu:5")->gpus_of(0, 2);
  ASSERT_FALSE(gpus);
  EXPECT_EQ(gpus.error().message, "--gpu-bind gives task 0 GPU 5: the step has 2, counted from 0");
}

RC_GTEST_PROP(GpuBindingProperty, GivesGpusOfTheStepAndEachOnce, ()) {
  GpuBinding binding;
  binding.kind = *rc::gen::element(GpuBinding::Kind::none, GpuBinding::Kind::single,
                                   GpuBinding::Kind::per_task);
  binding.count = *rc::gen::inRange<std::size_t>(1, 9);
  const auto count = *rc::gen::inRange<std::size_t>(1, 9);
  const auto task = *rc::gen::inRange<std::size_t>(0, 100);
  auto gpus = *binding.gpus_of(task, count);
  RC_ASSERT(!gpus.empty());
  for (const auto gpu : gpus) RC_ASSERT(gpu < count);
  std::sort(gpus.begin(), gpus.end());
  RC_ASSERT(std::adjacent_find(gpus.begin(), gpus.end()) == gpus.end());
}

OptionSet given_options(std::vector<std::pair<const char*, const char*>> words) {
  OptionSet options(SlurmCommand::sbatch);
  for (const auto& [name, value] : words) {
    EXPECT_TRUE(options.set(name, value, Source::command_line)) << name;
  }
  return options;
}

TEST(CountByGpu, CpusForEachGpu) {
  api::JobSpec job;
  ASSERT_TRUE(count_by_gpu(given_options({{"gpus", "2"}, {"cpus-per-gpu", "4"}}), job));
  EXPECT_EQ(job.min_cpus, 8);
}
TEST(CountByGpu, TasksForEachGpu) {
  api::JobSpec job;
  ASSERT_TRUE(count_by_gpu(given_options({{"gres", "gpu:2"}, {"ntasks-per-gpu", "2"}}), job));
  EXPECT_EQ(job.ntasks, 4);
}
TEST(CountByGpu, GpusForSoManyTasks) {
  api::JobSpec job;
  job.ntasks = 6;
  ASSERT_TRUE(count_by_gpu(given_options({{"ntasks", "6"}, {"ntasks-per-gpu", "3"}}), job));
  EXPECT_EQ(job.gpus, "2");
  EXPECT_EQ(job.ntasks, 6);
}
TEST(CountByGpu, RefusesWhatDoesNotGoTogether) {
  const auto refusal = [](std::vector<std::pair<const char*, const char*>> words) {
    const auto options = given_options(std::move(words));
    api::JobSpec job;
    job.ntasks = options.number("ntasks");
    const auto done = count_by_gpu(options, job);
    if (done) return std::string();
    return done.error().why.empty() ? done.error().message : done.error().why;
  };
  EXPECT_EQ(refusal({{"ntasks-per-gpu", "2"}, {"gpus-per-task", "1"}}),
            "--gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU");
  EXPECT_EQ(refusal({{"cpus-per-gpu", "2"}, {"cpus-per-task", "1"}, {"gpus", "1"}}),
            "--cpus-per-gpu is mutually exclusive with --cpus-per-task");
  EXPECT_THAT(refusal({{"gpus", "1"}, {"gpus-per-task", "1"}, {"ntasks", "2"}}),
              testing::HasSubstr("differ from -n/--ntasks"));
  EXPECT_EQ(refusal({{"cpus-per-gpu", "2"}}),
            "--cpus-per-gpu: the job asks for no GPU: add --gpus");
  EXPECT_EQ(refusal({{"ntasks-per-gpu", "2"}, {"ntasks", "5"}}),
            "-n/--ntasks 5 is not a multiple of --ntasks-per-gpu=2");
}

}  // namespace
}  // namespace aliquot::cli
