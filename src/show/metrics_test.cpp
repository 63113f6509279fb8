#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "show/gpu_metrics.hpp"
#include "show/job_metrics.hpp"
#include "show/page.hpp"

namespace aliquot::show {
namespace {

using testing::HasSubstr;
using testing::Not;

api::NodeInfo machine() {
  api::NodeInfo node;
  node.name = "gpu1";
  node.driver = "580";
  node.gpus.resize(1);
  api::GpuInfo& gpu = node.gpus[0];
  gpu.index = 3;
  gpu.uuid = "GPU-a";
  gpu.model = "h200";
  gpu.health = "ok";
  gpu.memory = 1'000;
  gpu.memory_granted = 600;
  gpu.utilisation = 2'500;
  gpu.power_mw = 123'500;
  gpu.processes.push_back({.pid = 9, .user = "eve", .command = {}, .memory = 70, .job_id = {}});
  gpu.uses.push_back({.job_id = 7,
                      .memory = 200,
                      .memory_peak = 300,
                      .utilisation = 1'200,
                      .gpu_ms = 1'500,
                      .waited_ms = 250,
                      .refusals = 2});
  return node;
}
api::JobInfo job() {
  api::JobInfo job;
  job.id = 7;
  job.user = "ann";
  job.account = "vision";
  job.gpus.push_back({.index = 3, .uuid = "GPU-a", .model = {}, .memory = 600, .compute = 5'000});
  return job;
}

TEST(MetricsTest, GpusAndSharesByTheirNames) {
  Exposition out;
  write_gpus(out, machine());
  write_shares(out, machine(), {job()}, {});
  const std::string text = out.take();
  for (const char* line :
       {"aliquot_gpu_info{gpu=\"3\",uuid=\"GPU-a\",model=\"h200\",driver=\"580\"} 1\n",
        "aliquot_gpu_memory_foreign_bytes{gpu=\"3\",uuid=\"GPU-a\"} 70\n",
        "aliquot_gpu_utilization_ratio{gpu=\"3\",uuid=\"GPU-a\"} 0.25\n",
        "aliquot_gpu_power_watts{gpu=\"3\",uuid=\"GPU-a\"} 123.5\n",
        "aliquot_share_compute_limit_ratio{gpu=\"3\",uuid=\"GPU-a\",job=\"7\",user=\"ann\",account="
        "\"vision\"} 0.5\n",
        "\naliquot_share_memory_used_bytes{gpu=\"3\",uuid=\"GPU-a\",job=\"7\",user=\"ann\",account="
        "\"vision\"} 200\n",
        "account=\"vision\"} 0.12\n", "aliquot_share_gpu_seconds_total{",
        "account=\"vision\"} 1.5\n", "account=\"vision\"} 0.25\n",
        "aliquot_share_oom_denied_total{"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("aliquot_gpu_temperature_celsius{"))) << "nobody says";
}

TEST(MetricsTest, WithoutUsersNoSeriesNamesOne) {
  Exposition out;
  write_shares(out, machine(), {job()}, {.users = false});
  JobFigures figures;
  figures.gpu_seconds[{"ann", "vision"}] = 2;
  figures.gpu_seconds[{"bob", ""}] = 3;
  write_jobs(out, figures, {.users = false});
  const std::string text = out.take();
  EXPECT_THAT(text, Not(HasSubstr("ann")));
  EXPECT_THAT(text, Not(HasSubstr("vision")));
  EXPECT_THAT(text, HasSubstr("\naliquot_gpu_seconds_total 5\n"));
  EXPECT_EQ(slurm_metrics("jobs-users-accts", figures, {}, {.users = false}), "");
}

TEST(MetricsTest, APodIsNamedByItsParts) {
  api::NodeInfo node = machine();
  node.gpus[0].uses[0].container = "main";
  api::JobInfo pod = job();
  pod.pod = "course/notebook-1";
  pod.account.clear();
  pod.gpus[0].container = "main";
  Exposition out;
  write_shares(out, node, {pod}, {});
  EXPECT_THAT(
      out.take(),
      HasSubstr(
          "aliquot_share_memory_used_bytes{gpu=\"3\",uuid=\"GPU-a\",job=\"course/notebook-1\","
          "user=\"ann\",namespace=\"course\",pod=\"notebook-1\",container=\"main\"} 200\n"));
}

TEST(MetricsTest, WhatIsStaleIsNoFigure) {
  api::NodeInfo node = machine();
  node.gpus[0].stale = true;
  Exposition out;
  write_gpus(out, node);
  const std::string text = out.take();
  EXPECT_THAT(text, Not(HasSubstr("utilization_ratio{")));
  EXPECT_THAT(text, HasSubstr("aliquot_gpu_memory_allocated_bytes{"));
}

TEST(MetricsTest, SlurmsNamesForTheSame) {
  JobFigures figures;
  figures.all.jobs = 3;
  figures.all.states["RUNNING"] = 2;
  figures.all.gpu_parts = 15'000;
  figures.partitions["main"] = figures.all;
  figures.passes.seconds.add(0.5);
  figures.passes.last = 0.5;
  EXPECT_THAT(slurm_metrics("jobs", figures, {}, {}), HasSubstr("\nslurm_jobs_running 2\n"));
  EXPECT_THAT(slurm_metrics("jobs", figures, {}, {}), HasSubstr("\nslurm_jobs_gpus_alloc 1.5\n"));
  EXPECT_THAT(slurm_metrics("partitions", figures, {}, {}),
              HasSubstr("\nslurm_partition_jobs{partition=\"main\"} 3\n"));
  EXPECT_THAT(slurm_metrics("scheduler", figures, {}, {}),
              HasSubstr("\nslurm_schedule_cycle_last 500000\n"));
  EXPECT_EQ(slurm_metrics("nothing", figures, {}, {}), "");
}

TEST(PageTest, TablesAreTextWhateverIsInThem) {
  Plain plain;
  plain.cluster.node = machine();
  api::JobInfo bad = job();
  bad.name = "<script>alert(\"1\")</script>&";
  bad.state = "RUNNING";
  plain.jobs.push_back(bad);
  const std::string text = plain_tables(plain);
  EXPECT_THAT(text, HasSubstr("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;"));
  EXPECT_THAT(text, Not(HasSubstr("<script")));
  EXPECT_THAT(front_page(plain).body, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(front_page(std::nullopt).body, HasSubstr("aliquot token"));
}

}  // namespace
}  // namespace aliquot::show
