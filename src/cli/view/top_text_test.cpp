#include "cli/view/top_text.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.hpp"
#include "cli/view/samples.hpp"

namespace aliquot::cli {
namespace {

using namespace samples;

const Looking kRootLooks{0, "root", kNow};

// Two nodes of two GPUs; job 1 is alone on n1/gpu0, 2 and 3 share n1/gpu1, n2 says nothing.
api::Overview slurm_cluster() {
  api::Overview overview;
  overview.cluster.engine = "slurm";
  for (const auto* name : {"n1", "n2"}) {
    api::NodeInfo node;
    node.name = name;
    node.state = "idle";
    for (std::int64_t i = 0; i < 2; ++i) {
      api::GpuInfo gpu;
      gpu.index = i;
      gpu.model = "h200";
      gpu.memory = gib(140).value();
      gpu.stale = node.name == "n2";
      node.gpus.push_back(gpu);
    }
    overview.cluster.nodes.push_back(node);
  }
  auto& n1 = overview.cluster.nodes[0];
  n1.state = "mixed";
  n1.gpus[0].jobs = {1};
  n1.gpus[0].whole = true;
  n1.gpus[0].memory_granted = gib(140).value();
  n1.gpus[0].memory_used = gib(12).value();
  n1.gpus[0].utilisation = 3'500;
  n1.gpus[1].jobs = {2, 3};
  n1.gpus[1].memory_granted = gib(70).value();
  n1.gpus[1].utilisation = 9'500;
  for (std::int64_t id = 1; id <= 3; ++id) {
    auto one = running(id, "train");
    one.gpus = {{id == 1 ? 0 : 1, "", "h200", gib(id == 1 ? 140 : 35).value(),
                 id == 1 ? 10'000 : 2'500, id == 1, "n1"}};
    overview.jobs.push_back(one);
  }
  return overview;
}

std::string shown(const api::Overview& overview, TopView view = {}, const TopHistory& history = {},
                  const Looking& looking = kRootLooks) {
  return format_top(overview, looking, view, history, Paint(false));
}

// As if somebody had looked every two seconds; `busy` is what the first GPU did.
TopHistory watched(api::Overview overview, const std::vector<std::int64_t>& busy) {
  TopHistory history;
  WallTime when = kNow - seconds(2 * (std::ssize(busy) - 1));
  for (const std::int64_t one : busy) {
    overview.cluster.nodes[0].gpus[0].utilisation = one;
    history.add(overview, when);
    when += seconds(2);
  }
  return history;
}

TEST(Top, ShowsGpusAndJobs) {
  use_utc();
  auto overview = slurm_cluster();
  auto waits = job(9, "big", "Resources");
  waits.gres = "gpu:4";
  overview.jobs.push_back(waits);
  auto next = job(10, "small", "Priority");
  next.start_ms = kNow.ms() + 90'000;
  overview.jobs.push_back(next);
  EXPECT_EQ(
      shown(overview),
      "06:44:35 · 3 running, 2 waiting · GPUs 2/4 in use · 2 free · free nodes 1/2 · 4 x h200 on 2 "
      "nodes\n"
      "  NODE GPU    BUSY  LAST MINUTE           GRANTED     USED  JOBS\n"
      "  n1   gpu0    35%                         140G/140G    12G  1 (whole)\n"
      "  n1   gpu1    95%                          70G/140G      0  2,3\n"
      "  n2   gpu0      ?                            0/140G      ?  -\n"
      "  n2   gpu1      ?                            0/140G      ?  -\n"
      "\n"
      "  JOB    USER      NAME          ST       TIME BUSY   USED  SHARE\n"
      "  1      root      train         R        0:29  35%    12G  n1/gpu0:whole\n"
      "  2      root      train         R        0:29    -      -  n1/gpu1:35G,25%\n"
      "  3      root      train         R        0:29    -      -  n1/gpu1:35G,25%\n"
      "  10     root      small         PD                         gpu:1, in 1:30\n"
      "  9      root      big           PD                         gpu:4, Resources\n");
}

TEST(Top, FitsTheSmallestScreen) {
  use_utc();
  auto overview = slurm_cluster();
  for (std::int64_t id = 4; id <= 60; ++id) overview.jobs.push_back(job(id, "waits", "Priority"));
  for (int i = 3; i <= 9; ++i) {
    overview.cluster.nodes.push_back(overview.cluster.nodes[1]);
    overview.cluster.nodes.back().name = "n" + std::to_string(i);
  }
  TopView view{.lines = 24, .columns = 80};
  const auto text = shown(overview, view, watched(overview, std::vector<std::int64_t>(31, 10'000)));
  EXPECT_EQ(std::ranges::count(text, '\n'), 23);
  EXPECT_NE(text.find("  … and 9 more: g\n"), text.npos) << text;
  EXPECT_NE(text.find("\nby busy · 1-9 of 60 · s order"), text.npos) << text;
  for (const auto line : split(text, '\n')) {
    const auto letters = std::ranges::count_if(
        line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; });
    EXPECT_LE(letters, 80) << line;
  }
  // Down to the last one, and no further.
  press(view, "\x1b[F");
  EXPECT_NE(shown(overview, view).find("\n  60 "), text.npos);
}

TEST(Top, RemembersAMinute) {
  const auto overview = slurm_cluster();
  const auto rising = watched(overview, {0, 0, 0, 2'000, 2'000, 2'000, 5'000, 5'000, 5'000, 9'999});
  const auto line = sparkline(rising.of_gpu("n1", 0, kNow));
  EXPECT_TRUE(line.ends_with("▁▁▁▂▃▅▆")) << line;
  EXPECT_TRUE(line.starts_with("             ")) << line;
  EXPECT_FALSE(was_idle(rising.of_gpu("n1", 0, kNow)));
  EXPECT_EQ(sparkline(rising.of_gpu("n2", 0, kNow)), std::string(20, ' '));
  // Held, and nothing done: of the job that has it alone, too.
  const auto idle = watched(overview, std::vector<std::int64_t>(31, 0));
  EXPECT_TRUE(was_idle(idle.of_gpu("n1", 0, kNow)));
  EXPECT_TRUE(was_idle(idle.of_job(1, kNow)));
  EXPECT_FALSE(was_idle(idle.of_job(2, kNow))) << "nobody knows";
  EXPECT_FALSE(was_idle(watched(overview, {0, 0, 0}).of_gpu("n1", 0, kNow))) << "too soon";
  // A slow look stands until the next.
  TopHistory slow;
  slow.add(overview, kNow - seconds(20));
  slow.add(overview, kNow);
  EXPECT_TRUE(sparkline(slow.of_gpu("n1", 0, kNow)).ends_with("▃▃▃▃▃▃▃"));
}

TEST(Top, AJobsUseIsWhatItsGpuTimeGrewBy) {
  auto overview = slurm_cluster();
  TopHistory history;
  overview.jobs[1].gpu_ms = 10'000;
  overview.jobs[2].gpu_ms = 1'000;
  history.add(overview, kNow - seconds(2));
  EXPECT_FALSE(history.busy_of(2));
  overview.jobs[1].gpu_ms += 500;
  history.add(overview, kNow);
  EXPECT_EQ(history.busy_of(2), 2'500);
  EXPECT_EQ(history.busy_of(3), 0);
  EXPECT_NE(
      shown(overview, {}, history).find("  2      root      train         R        0:29  25%"),
      std::string::npos);
}

TEST(Top, OrderAndFilter) {
  use_utc();
  auto overview = slurm_cluster();
  overview.jobs[0].user = "ann";
  overview.jobs[1].name = "Eval";
  overview.jobs[2].gpu_utilisation = 9'000;
  overview.jobs[2].uid = 7;
  overview.jobs.push_back(job(12, "later", "Priority"));
  const auto order = [&](TopView view) {
    const auto text = shown(overview, view);
    std::string ids;
    const auto table = text.substr(text.find("  JOB "));
    for (const auto line : split(table, '\n')) {
      if (line.size() > 2 && line[2] >= '0' && line[2] <= '9') {
        ids += (ids.empty() ? "" : " ") + std::string(line.substr(2, line.find(' ', 2) - 2));
      }
    }
    return ids;
  };
  EXPECT_EQ(order({}), "3 1 2 12");
  EXPECT_EQ(order({.reversed = true}), "2 1 3 12");
  EXPECT_EQ(order({.sort = TopSort::job}), "1 2 3 12");
  EXPECT_EQ(order({.sort = TopSort::user}), "1 2 3 12");
  EXPECT_EQ(order({.sort = TopSort::memory}), "1 2 3 12");
  EXPECT_EQ(order({.filter = "eVaL"}), "2");
  EXPECT_EQ(order({.filter = "gpu1"}), "3 2");
  EXPECT_EQ(order({.filter = "pend"}), "12");
  EXPECT_EQ(order({.mine = true}), "1 2 12");
  EXPECT_EQ(order({.waiting = false}), "3 1 2");
}

TEST(Top, ColoursSayWhatToLookAt) {
  auto overview = slurm_cluster();
  overview.cluster.nodes[1].gpus[0].health = "lost";
  overview.jobs[2].uid = 7;
  overview.cluster.nodes[0].gpus[1].processes = {{8, "root", "x", gib(34).value(), 2}};
  TopView view;
  const auto text = format_top(overview, kRootLooks, view,
                               watched(overview, std::vector<std::int64_t>(31, 0)), Paint(true));
  EXPECT_NE(text.find("\x1b[33m"), text.npos) << "gpu0 is held and idle";
  EXPECT_NE(text.find("\x1b[33m  1 "), text.npos) << "its job, too";
  EXPECT_NE(text.find("\x1b[32m 95%"), text.npos) << "gpu1 is used";
  EXPECT_NE(text.find("\x1b[31m  2 "), text.npos) << "its memory is nearly full";
  EXPECT_NE(text.find("\x1b[31m  lost"), text.npos);
}

TEST(Top, KeysChoose) {
  TopView view;
  std::string_view typed = "s<ru/aé\x7f\r\x1b[B\x1b[6~k?";
  while (!typed.empty()) EXPECT_EQ(press(view, next_key(typed)), TopWish::show);
  EXPECT_EQ(view.sort, TopSort::busy);
  EXPECT_TRUE(view.reversed && view.mine && view.help && !view.typing);
  EXPECT_EQ(view.filter, "a");
  EXPECT_EQ(view.first, 10U);
  EXPECT_EQ(press(view, "x"), TopWish::show) << "away with the help";
  EXPECT_FALSE(view.help);
  EXPECT_EQ(press(view, "\x1b"), TopWish::show);
  EXPECT_EQ(view.filter, "");
  EXPECT_EQ(press(view, " "), TopWish::look);
  press(view, "/");
  EXPECT_EQ(press(view, "q"), TopWish::show) << "a letter of the filter";
  press(view, "\n");
  EXPECT_EQ(press(view, "q"), TopWish::quit);
}

TEST(Top, MeasuresWhatIsTheJobsOwn) {
  auto overview = slurm_cluster();
  EXPECT_EQ(use_of(overview.jobs[0], overview.cluster).utilisation, 3'500);
  EXPECT_FALSE(use_of(overview.jobs[1], overview.cluster).utilisation);
  overview.cluster.nodes[0].gpus[1].processes = {{7, "root", "x", gib(2).value(), 2},
                                                 {8, "root", "y", gib(1).value(), 2},
                                                 {9, "root", "z", gib(4).value(), 3}};
  overview.jobs[1].gpu_utilisation = 1'200;
  EXPECT_EQ(use_of(overview.jobs[1], overview.cluster).memory, gib(3).value());
  EXPECT_EQ(use_of(overview.jobs[1], overview.cluster).utilisation, 1'200);
  EXPECT_EQ(use_of(overview.jobs[2], overview.cluster).memory, gib(4).value());
}

TEST(Top, WorksOnOneMachine) {
  use_utc();
  api::Overview overview{cluster(), {running(1, "train")}};
  const auto text = shown(overview);
  EXPECT_NE(text.find("GPUs 2/4 in use · 2 free · 4 x h100 on localhost"), text.npos) << text;
  EXPECT_NE(text.find("\n  gpu0     0%"), text.npos) << text;
}

TEST(Top, IsCutToTheScreen) {
  EXPECT_EQ(clip("abc\ndef\nghi\n", 2, 2), "ab\nde\n");
  EXPECT_EQ(clip("\x1b[1mabc\x1b[0m\n", 1, 2), "\x1b[1mab\x1b[0m\n");
  EXPECT_EQ(clip("a·c\n", 1, 2), "a·\n");
  EXPECT_EQ(clip("abc", 5, 10), "abc");
  EXPECT_EQ(clip("\x1b[1", 5, 10), "");
}

TEST(Overview, OfAClusterNamesNodes) {
  use_utc();
  auto overview = slurm_cluster();
  overview.cluster.config["MaxGpusPerUser"] = "4";
  EXPECT_EQ(format_status(overview.cluster, overview.jobs, kRootLooks, Paint(false)),
            R"(GPUs 2/4 in use · 2 free · free nodes 1/2 · 4 x h200 on 2 nodes
  n1 gpu0  [##########]  140G/140G    35% busy  jobs 1 (whole)
  n1 gpu1  [#####.....]   70G/140G    95% busy  jobs 2,3
  n2 gpu0  [..........]     0/140G      ? busy  jobs -
  n2 gpu1  [..........]     0/140G      ? busy  jobs -
root: using 1.5/4 GPUs allowed · 3 running, 0 waiting
  JOB          NAME           STATE            TIME  GPUS                     UNTIL / WHY
  1            train          RUNNING          0:29  n1/gpu0:whole            ends by 2026-11-15T06:54:06
  2            train          RUNNING          0:29  n1/gpu1:35G,25%          ends by 2026-11-15T06:54:06
  3            train          RUNNING          0:29  n1/gpu1:35G,25%          ends by 2026-11-15T06:54:06
)");
  overview.cluster.nodes[1].state = "down";
  overview.cluster.nodes[1].reason = "fan";
  const auto text = format_status(overview.cluster, {}, kRootLooks, Paint(false));
  EXPECT_NE(text.find("free nodes 0/2"), text.npos);
  EXPECT_NE(text.find("n2 down: fan\n"), text.npos);
}

TEST(Overview, OfALargeClusterIsALineANode) {
  auto overview = slurm_cluster();
  for (int i = 3; i <= 24; ++i) {
    overview.cluster.nodes.push_back(overview.cluster.nodes[1]);
    overview.cluster.nodes.back().name = "n" + std::to_string(i);
  }
  const auto text = format_status(overview.cluster, overview.jobs, kRootLooks, Paint(false));
  EXPECT_NE(text.find("  n1  [########..]  210G/280G    65% busy  2/2 GPUs in use, 3 jobs\n"),
            text.npos)
      << text;
  EXPECT_EQ(text.find("gpu0  ["), text.npos);
}

TEST(Overview, OfAClusterListsGpusWithTheirNodes) {
  const auto overview = slurm_cluster();
  const auto text = format_gpus(overview.cluster, overview.jobs, Paint(false));
  EXPECT_NE(text.find("NODE GPU   MODEL"), text.npos);
  EXPECT_NE(text.find("n1   1     h200"), text.npos) << text;
  EXPECT_NE(text.find("      job 3 root train: 35G, 25% of compute\n"), text.npos) << text;
}

TEST(Top, ShowsPods) {
  use_utc();
  auto overview = slurm_cluster();
  overview.cluster.engine = "kubernetes";
  for (auto& job : overview.jobs) job.pod = "team/train-" + std::to_string(job.id);
  const auto text = shown(overview);
  EXPECT_NE(text.find("  PODS\n"), text.npos) << text;
  EXPECT_NE(text.find("  team/train-2,team/train-3\n"), text.npos) << text;
  EXPECT_NE(text.find("  POD          "), text.npos) << text;
  EXPECT_NE(text.find("  team/train-1 "), text.npos) << text;
}

}  // namespace
}  // namespace aliquot::cli
