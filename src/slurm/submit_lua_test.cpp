#include "slurm/submit_lua.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "base/text.hpp"
#include "core/request_words.hpp"
#include "slurm/lua_host_test.hpp"
#include "slurm/site_settings.hpp"

namespace aliquot::slurm {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// With every interpreter of this machine.
class SubmitLua : public ::testing::TestWithParam<std::string> {
 protected:
  void load(const SiteTable& site, const std::string& theirs = "") {
    ASSERT_TRUE(check(site).has_value());
    host_ = std::make_unique<LuaHost>(GetParam(), std::vector{theirs, make_submit_lua(site)});
  }

  // What is booked and noted, or the sentence of the refusal.
  std::string submit(const Fields& fields, const std::vector<std::string>& spank = {}) {
    called_ = host_->submit(fields, spank);
    if (called_.refused()) return called_.code + ": " + called_.text("user");
    const auto gres = called_.text("tres_per_node");
    return gres + (called_.fields.contains("shared") ? " exclusive" : "") + " | " +
           called_.text("admin_comment");
  }
  std::string modify(const Fields& fields) {
    called_ = host_->modify(fields);
    if (called_.refused()) return called_.code + ": " + called_.text("user");
    return called_.text("tres_per_node") + " | " + called_.text("admin_comment");
  }
  static std::string gpu_mem(const std::string& text) {
    return "_SLURM_SPANK_OPTION_aliquot_gpu_mem=" + text;
  }
  static std::string gpu_share(const std::string& text) {
    return "_SLURM_SPANK_OPTION_aliquot_gpu_share=" + text;
  }

  std::unique_ptr<LuaHost> host_;
  Called called_;
};

INSTANTIATE_TEST_SUITE_P(Each, SubmitLua, ::testing::ValuesIn(test::interpreters_or_none()),
                         test::name_of_interpreter);

TEST_P(SubmitLua, LeavesJobsWithoutGpusAlone) {
  NEED_LUA();
  load(old_site());
  EXPECT_EQ(submit({}), " | ");
  EXPECT_EQ(submit({{"tres_per_node", "gres:craynetwork:1"}, {"admin_comment", "x"}}),
            "gres:craynetwork:1 | x");
  EXPECT_EQ(submit({{"tres_per_task", "cpu=4"}, {"tres_per_node", "fpga:1,,"}}), "fpga:1,, | ");
  EXPECT_EQ(called_.text("tres_per_task"), "cpu=4");
  EXPECT_EQ(submit({{"tres_per_node", "gpu:0"}}), "gpu:0 | ");
  EXPECT_EQ(submit({{"tres_per_node", "NONE"}}), "NONE | ");
  EXPECT_EQ(submit({}, {"_SLURM_SPANK_OPTION_pyxis_container_image=gpu_mem=8G"}), " | ");
  EXPECT_EQ(called_.fields.size(), 0U);
}

TEST_P(SubmitLua, BooksShares) {
  NEED_LUA();
  load(old_site());
  EXPECT_EQ(submit({{"tres_per_node", "gres:mps:25"}}), "shard:35 | aliquot: mps:25");
  EXPECT_EQ(submit({{"tres_per_node", "gres/shard:2"}}), "shard:35 | aliquot: shard:2");
  EXPECT_EQ(submit({{"tres_per_node", "mps:A100:50"}, {"partition", "mixed"}}),
            "shard:A100:20 | aliquot: mps:a100:50");
  EXPECT_EQ(submit({}, {"OTHER=1", gpu_mem("8G")}), "shard:8 | aliquot: --gpu-mem=8G");
  EXPECT_EQ(submit({}, {gpu_mem("8G"), gpu_share("50%")}),
            "shard:70 | aliquot: --gpu-mem=8G --gpu-share=50%");
  EXPECT_EQ(submit({{"tres_per_job", "gres:gpu:h200:1"}}, {gpu_share("12.5%")}),
            "shard:h200:18 | aliquot: --gpu-share=12.5% --gpus=h200:1");
  EXPECT_EQ(called_.text("tres_per_job"), "");
  EXPECT_EQ(called_.text("min_nodes"), "1");
  EXPECT_EQ(submit({{"tres_per_node", "gres:fpga:1,gres:mps:25"}}),
            "shard:35,fpga:1 | aliquot: mps:25");
  EXPECT_EQ(submit({{"tres_per_node", "mps:25"}, {"min_nodes", 2}, {"num_tasks", 8}}),
            "shard:35 | aliquot: mps:25");
}

TEST_P(SubmitLua, FindsTheDefaultPartition) {
  NEED_LUA();
  load(old_site());
  EXPECT_EQ(submit({{"tres_per_node", "mps:50"}, {"part.mixed", 1}, {"part.main", 0}}),
            "shard:70 | aliquot: mps:50");
  EXPECT_EQ(submit({{"tres_per_node", "mps:1"}, {"part.cpu", 1}}),
            "2072: the partition 'cpu' has no GPU: write --partition with one of main, mixed");
}

TEST_P(SubmitLua, BooksWholeGpusAsAllTheirShardsOnOldSlurm) {
  NEED_LUA();
  load(old_site());
  EXPECT_EQ(submit({{"tres_per_node", "gres:gpu:1"}}), "shard:140 | aliquot: gpu:1");
  EXPECT_EQ(submit({{"tres_per_node", "gpu:a100:1"}, {"partition", "mixed"}}),
            "shard:A100:40 | aliquot: gpu:a100:1");
  EXPECT_EQ(submit({{"tres_per_job", "gres:gpu:1"}}), "shard:140 | aliquot: gpu:1");
  EXPECT_EQ(called_.text("tres_per_job"), "");
  EXPECT_EQ(called_.text("max_nodes"), "1");
  EXPECT_EQ(submit({{"tres_per_task", "cpu:4,gres:gpu:1,gres/fpga:1"}, {"num_tasks", 1}}),
            "shard:140 | aliquot: gpu:1");
  EXPECT_EQ(called_.text("tres_per_task"), "cpu:4,gres/fpga:1");

  EXPECT_EQ(submit({{"tres_per_node", "gres:gpu:2"}}), "gres:gpu:2 exclusive | aliquot: gpu:2");
  EXPECT_THAT(called_.text("user"), HasSubstr("take whole nodes, all GPUs of which the job sees"));
  EXPECT_EQ(submit({{"tres_per_node", "gpu:1"}, {"partition", "mixed"}}),
            "gpu:1 exclusive | aliquot: gpu:1");
  // What our words cannot say, Slurm's can.
  EXPECT_EQ(submit({{"tres_per_job", "gres:gpu:3"}, {"min_nodes", 2}}), " exclusive | ");
  EXPECT_EQ(submit({{"tres_per_node", "gpu:a100:1,gpu:h200:1"}}),
            "gpu:a100:1,gpu:h200:1 exclusive | ");
  EXPECT_EQ(submit({{"tres_per_socket", "gres:gpu:1"}}), " exclusive | ");
  EXPECT_EQ(submit({{"ntasks_per_tres", 4}, {"num_tasks", 4}}), " exclusive | ");
}

TEST_P(SubmitLua, LeavesWholeGpusToNewSlurm) {
  NEED_LUA();
  load(new_site());
  EXPECT_EQ(submit({{"tres_per_node", "gres/gpu:1"}}), "gres/gpu:1 | aliquot: gpu:1");
  EXPECT_EQ(submit({{"tres_per_node", "gres/gpu:h200:4"}}),
            "gres/gpu:h200:4 | aliquot: gpu:h200:4");
  EXPECT_EQ(submit({{"tres_per_job", "gres/gpu:200"}}), " | ");
  EXPECT_EQ(called_.text("tres_per_job"), "gres/gpu:200");
  EXPECT_EQ(called_.text("user"), "");
}

TEST_P(SubmitLua, RefusesInASentence) {
  NEED_LUA();
  load(old_site());
  EXPECT_EQ(submit({}, {gpu_mem("141G")}),
            "2072: --gpu-mem=141G is more than any GPU of the partition 'main' has: write at most "
            "--gpu-mem=143771M");
  EXPECT_EQ(submit({{"tres_per_node", "mps:101"}}),
            "2072: mps:101 is more than one GPU: write at most mps:100, or gpu:1 for a whole one");
  EXPECT_EQ(submit({{"tres_per_job", "gres:gpu:2"}}, {gpu_share("25%")}),
            "2072: 2 parts of GPUs on a node are not possible: ask for one, or for whole GPUs");
  EXPECT_EQ(submit({{"tres_per_node", "gpu:2"}}, {gpu_share("25%")}),
            "2072: --gres='gpu:2' asks for whole GPUs and --gpu-share for a part of one: drop "
            "--gpu-share, or write --gpus=1 for a share");
  EXPECT_EQ(
      submit({{"tres_per_node", "gpu:0"}}, {gpu_mem("8G")}),
      "2072: --gres='gpu:0' asks for no GPU, another option for a part of one: write only one "
      "of them");
  EXPECT_EQ(submit({}, {gpu_share("25%"), "ALIQUOT_GPUS_PER_NODE=2"}),
            "2072: 2 parts of GPUs on a node are not possible: ask for one, or for whole GPUs");
  EXPECT_EQ(submit({}, {gpu_share("25%"), "ALIQUOT_GPUS_PER_NODE=x y"}),
            "2072: --gpus-per-node='x y': 'x y' is neither a count nor a GPU model: write a number "
            "such as 2, or a model and a number");
  EXPECT_EQ(submit({{"tres_per_node", "gpu:b200:1"}}),
            "2072: there is no GPU of model 'b200' in the partition 'main': write one of h200");
  EXPECT_EQ(submit({{"tres_per_node", "gpu:5"}}),
            "2014: 5 GPUs of one node are more than any of the partition 'main' has: write at most "
            "4");
  EXPECT_EQ(submit({{"tres_per_node", "gpu:0.5"}}),
            "2072: --gres='gpu:0.5' is no whole number of GPUs: for a part of one write "
            "--gpu-share=50%");
  EXPECT_EQ(submit({{"tres_per_socket", "gres:gpu:1"}}, {gpu_mem("1G")}),
            "2072: a part of a GPU does not go with --gpus-per-socket: drop it");
  EXPECT_EQ(submit({{"tres_per_job", "gres:shard:2"}}),
            "2072: shard of a GPU can be asked for by node only: write --gres=shard:4 or "
            "shard:titanrtx:4");
  EXPECT_EQ(submit({{"tres_per_node", "mps:%d%s\x1b[2J"}}),
            "2072: --gres='mps:%d%s\\x1b[2J' does not read as mps[:model]:count: write mps:25 or "
            "mps:titanrtx:25");
  EXPECT_THAT(called_.text("log"), HasSubstr("aliquot: refused: "));
}

// As the SPANK plugin hands them over, so that no step repeats them.
TEST_P(SubmitLua, ReadsWordsThatCameBesideSlurms) {
  NEED_LUA();
  load(old_site());
  EXPECT_EQ(submit({}, {"ALIQUOT_GRES=mps:25"}), "shard:35 | aliquot: mps:25");
  EXPECT_EQ(submit({}, {"ALIQUOT_GPUS=h200:1", "ALIQUOT_CPUS_PER_GPU=8", "ALIQUOT_MEM_PER_GPU=4G"}),
            "shard:h200:140 | aliquot: gpu:h200:1");
  EXPECT_EQ(called_.text("pn_min_cpus") + " " + called_.text("min_mem_per_node"), "8 4096");
  EXPECT_EQ(submit({}, {"ALIQUOT_GPUS_PER_NODE=1", "ALIQUOT_GRES=fpga:1"}),
            "shard:140,fpga:1 | aliquot: gpu:1");
  EXPECT_EQ(submit({}, {"ALIQUOT_GPUS_PER_TASK=1", gpu_share("25%")}),
            "shard:35 | aliquot: --gpu-share=25%");
  EXPECT_THAT(submit({}, {"ALIQUOT_GRES=mps:0"}), HasSubstr("2072: --gres='mps:0' asks for none"));
  // What is Slurm's after all goes back to it.
  EXPECT_EQ(submit({{"partition", "mixed"}}, {"ALIQUOT_GPUS=1"}),
            "gpu:1 exclusive | aliquot: gpu:1");
  EXPECT_EQ(called_.text("max_nodes"), "1");
  submit({{"partition", "mixed"}},
         {"ALIQUOT_GPUS=1", "ALIQUOT_CPUS_PER_GPU=8", "ALIQUOT_MEM_PER_GPU=4G"});
  EXPECT_EQ(called_.text("cpus_per_tres") + " " + called_.text("mem_per_tres"),
            "gres:gpu:8 gres:gpu:4096");
  EXPECT_EQ(submit({{"partition", "mixed"}}, {"ALIQUOT_GRES=gpu:2,fpga:1"}),
            "gpu:2,fpga:1 exclusive | aliquot: gpu:2");
  EXPECT_EQ(submit({}, {"ALIQUOT_GRES=fpga:1"}), "fpga:1 | ");
  EXPECT_THAT(submit({{"min_nodes", 2}}, {"ALIQUOT_GPUS=1"}),
              HasSubstr("does not spread evenly over 2 nodes"));
}

TEST_P(SubmitLua, LeavesOtherGpusToSlurm) {
  NEED_LUA();
  auto site = old_site();
  site.partitions[0].shared = false;
  site.partitions[2].foreign = true;
  load(site);
  EXPECT_EQ(submit({{"tres_per_node", "gpu:2"}}), "gpu:2 | aliquot: gpu:2");
  EXPECT_EQ(submit({{"tres_per_node", "gpu:2"}, {"partition", "main,mixed"}}),
            "gpu:2 exclusive | aliquot: gpu:2");
  EXPECT_EQ(submit({{"tres_per_node", "gres:mps:50"}, {"partition", "cpu"}}), "gres:mps:50 | ");
  // Also what a plugin with old settings has taken out.
  EXPECT_EQ(submit({{"partition", "cpu"}}, {"ALIQUOT_GRES=gpu,mps:50,fpga:1"}),
            "gpu,mps:50,fpga:1 | ");
  EXPECT_EQ(submit({{"partition", "cpu"}}, {gpu_share("25%")}),
            "2072: the GPUs of the partition 'cpu' are not shared: write --gres, as the site says, "
            "or --partition");
  // Slurm 22.05 dies of what starts without what it was submitted with.
  for (const char* empty : {"", "gres:"}) {
    EXPECT_EQ(
        modify({{"tres_per_node", empty},
                {"partition", "mixed"},
                {"record.tres_per_node", "gres:shard:7"}}),
        "2072: this version of Slurm cannot take a job's GPUs away: cancel it and submit it anew");
  }
  // Nobody comes to the shares by a way around.
  EXPECT_EQ(modify({{"partition", "mixed"}, {"record.tres_per_node", "gres:gpu:1"}}),
            "2072: the job's GPUs are booked otherwise here: cancel it and submit it anew");
  EXPECT_EQ(modify({{"partition", "main"}, {"record.tres_per_node", "gres:gpu:1"}}), " | ");
}

TEST_P(SubmitLua, KeepsWhatBelongsToEachGpu) {
  NEED_LUA();
  load(old_site());
  submit({{"tres_per_job", "gres:gpu:1"},
          {"cpus_per_tres", "gres:gpu:8"},
          {"mem_per_tres", "gres:gpu:4096"},
          {"min_cpus", 1},
          {"script", "#!/bin/sh"},
          {"env.SLURM_GPUS", "1"},
          {"env.HOME", "/home/x"}});
  EXPECT_EQ(called_.text("pn_min_cpus"), "8");
  EXPECT_EQ(called_.text("min_cpus"), "8");
  EXPECT_EQ(called_.text("min_mem_per_node"), "4096");
  EXPECT_EQ(called_.text("cpus_per_tres") + called_.text("mem_per_tres"), "");
  // srun would take it from sbatch's environment and ask for a GPU that the job does not hold.
  EXPECT_EQ(called_.text("env.SLURM_GPUS"), "");
  EXPECT_EQ(called_.text("env.HOME"), "/home/x");
}

TEST_P(SubmitLua, GivesSharesOnlyWhereTheSiteSays) {
  NEED_LUA();
  auto site = new_site();
  site.gates = {
      .partitions = {"ma*"}, .accounts = {"phys", "ch?m"}, .reservations = {"jupyterhub_course_*"}};
  load(site);
  const Fields course{
      {"tres_per_node", "mps:25"}, {"account", "chem"}, {"reservation", "jupyterhub_course_ml"}};
  const auto with = [&](const std::string& key, const std::string& value) {
    auto fields = course;
    fields[key] = value;
    return submit(fields);
  };
  EXPECT_EQ(submit(course), "shard:35 | aliquot: mps:25");
  EXPECT_EQ(with("partition", "mixed"),
            "2072: parts of a GPU are given in the partitions ma* only: write --partition, or "
            "--gres=gpu:1 for a whole GPU");
  EXPECT_THAT(with("partition", "main,mixed"), HasSubstr("the partitions ma* only"));
  EXPECT_THAT(with("account", "bio"), HasSubstr("the accounts phys, ch?m only"));
  EXPECT_THAT(with("account", "chemistry"), HasSubstr("the accounts phys, ch?m only"));
  EXPECT_THAT(with("reservation", "xjupyterhub_course_ml"),
              HasSubstr("the reservations jupyterhub_course_* only: write --reservation"));
  EXPECT_THAT(submit({{"tres_per_node", "mps:25"}, {"default_account", "phys"}}),
              HasSubstr("the reservations jupyterhub_course_* only"));
  EXPECT_EQ(submit({{"tres_per_node", "gpu:1"}}), "gpu:1 | aliquot: gpu:1");
}

TEST_P(SubmitLua, ReadsShellPatterns) {
  NEED_LUA();
  auto site = new_site();
  site.gates.accounts = {"a[0-9]", "b[!x]", "c.%", "[]d]", "[z", "e[]"};
  load(site);
  const auto open = [&](const std::string& account) {
    return submit({{"tres_per_node", "mps:1"}, {"account", account}}).starts_with("shard");
  };
  for (const auto* name : {"a7", "by", "c.%", "]", "d", "[z", "e[]"}) EXPECT_TRUE(open(name));
  for (const auto* name : {"ax", "a77", "bx", "cx%", "z", "e", "xa7"}) EXPECT_FALSE(open(name));
}

TEST_P(SubmitLua, TakesNoOneElsesWordForIt) {
  NEED_LUA();
  load(old_site());
  EXPECT_EQ(submit({{"tres_per_node", "mps:25"}, {"admin_comment", "aliquot: gpu:4; site: ok"}}),
            "shard:35 | site: ok; aliquot: mps:25");
}

constexpr auto kTheirs = R"(
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.account == "closed" then
    slurm.log_user("closed today")
    return 2015
  elseif job_desc.account == "broken" then
    job_desc = job_desc .. nil
  elseif job_desc.account == "quiet" then
    return
  end
  job_desc.admin_comment = "site: seen"
  if job_desc.partition == nil then job_desc.partition = "mixed" end
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  if job_desc.account == "closed" then return slurm.ERROR end
  return slurm.SUCCESS
end
)";

TEST_P(SubmitLua, RunsTheSitesOwnFirst) {
  NEED_LUA();
  load(old_site(), kTheirs);
  EXPECT_EQ(submit({{"tres_per_node", "gpu:a100:1"}}),
            "shard:A100:40 | site: seen; aliquot: gpu:a100:1");
  EXPECT_EQ(submit({}), " | site: seen");
  EXPECT_EQ(submit({{"account", "closed"}, {"tres_per_node", "gpu:1"}}), "2015: closed today");
  EXPECT_EQ(called_.text("tres_per_node"), "gpu:1");
  EXPECT_EQ(submit({{"account", "quiet"}, {"tres_per_node", "mps:25"}}),
            "shard:35 | aliquot: mps:25");
  // Theirs fails: slurmctld hears it, and the booking is right whatever it makes of that.
  EXPECT_THAT(submit({{"account", "broken"}, {"tres_per_node", "mps:25"}}), HasSubstr("failed"));
  EXPECT_EQ(called_.text("tres_per_node"), "shard:35");
  EXPECT_THAT(called_.text("log"), HasSubstr("attempt to concatenate"));
  EXPECT_THAT(submit({{"account", "broken"}, {"tres_per_node", "mps:0"}}), HasSubstr("2072: "));
  EXPECT_EQ(modify({{"account", "closed"}}), "-1: ");
}

TEST_P(SubmitLua, MayBeNamedTwice) {
  NEED_LUA();
  host_ = std::make_unique<LuaHost>(
      GetParam(), std::vector{make_submit_lua(old_site()), make_submit_lua(old_site())});
  EXPECT_EQ(submit({{"tres_per_node", "mps:25"}}), "shard:35 | aliquot: mps:25");
}

TEST_P(SubmitLua, RefusesToChangeGpusOnOldSlurm) {
  NEED_LUA();
  load(old_site());
  const Fields shared{{"record.admin_comment", "site: x; aliquot: mps:25"},
                      {"record.tres_per_node", "gres:shard:35"},
                      {"record.partition", "main"}};
  const auto with = [&](Fields fields) {
    fields.insert(shared.begin(), shared.end());
    return modify(fields);
  };
  EXPECT_EQ(with({}), " | ");
  EXPECT_EQ(with({{"tres_per_node", "mps:50"}}),
            "2072: this version of Slurm cannot change a job's GPUs: cancel it and submit it anew");
  EXPECT_EQ(with({{"partition", "main"}}), " | ");
  EXPECT_EQ(with({{"partition", "mixed"}}), " | ");
  EXPECT_EQ(with({{"partition", "cpu"}}),
            "2072: the partition 'cpu' has no GPU: write --partition with one of main, mixed");
}

TEST_P(SubmitLua, BooksAnewWhatIsChangedOnNewSlurm) {
  NEED_LUA();
  auto site = new_site();
  site.partitions.push_back({"small", {"A100"}});
  site.gates.accounts = {"phys"};
  load(site);
  const Fields shared{{"record.admin_comment", "aliquot: mps:25; site: x"},
                      {"record.tres_per_node", "gres/shard:35"},
                      {"record.account", "phys"},
                      {"record.partition", "main"}};
  const auto with = [&](Fields fields) {
    fields.insert(shared.begin(), shared.end());
    return modify(fields);
  };
  EXPECT_EQ(with({{"tres_per_node", "mps:50"}}), "shard:70 | site: x; aliquot: mps:50");
  EXPECT_EQ(with({{"tres_per_node", "gres/gpu:2"}}), "gres/gpu:2 | site: x; aliquot: gpu:2");
  EXPECT_EQ(with({{"partition", "small"}}), "shard:10 | ");
  EXPECT_EQ(with({{"partition", "main"}}), " | ");
  EXPECT_THAT(with({{"account", "bio"}}), HasSubstr("the accounts phys only"));
  EXPECT_EQ(modify({{"account", "bio"}}), " | ");
}

TEST_P(SubmitLua, EveryChangePassesTheGates) {
  NEED_LUA();
  for (auto site : {old_site(), new_site()}) {
    site.gates = {{"main"}, {"phys"}, {"course_*"}};
    load(site);
    const auto with = [&](Fields fields) {
      const Fields record{{"record.admin_comment", "aliquot: mps:25"},
                          {"record.tres_per_node", "gres:shard:35"},
                          {"record.account", "phys"},
                          {"record.resv_name", "course_ml"},
                          {"record.partition", "main"}};
      fields.insert(record.begin(), record.end());
      return modify(fields);
    };
    EXPECT_EQ(with({{"reservation", "course_x"}}), " | ");
    EXPECT_THAT(with({{"reservation", ""}}), StartsWith("2052: parts of a GPU are given in the "));
    EXPECT_THAT(with({{"reservation", "seminar"}}), StartsWith("2052: "));
    EXPECT_THAT(with({{"account", ""}}), StartsWith("2045: "));
    EXPECT_EQ(with({{"account", ""}, {"default_account", "phys"}}), " | ");
    EXPECT_THAT(with({{"account", "bio"}, {"reservation", "course_x"}}), StartsWith("2045: "));
    EXPECT_THAT(with({{"partition", "mixed"}}), StartsWith("2002: "));
    EXPECT_EQ(with({{"qos", "high"}}), " | ") << "nothing of a gate";
    const std::pair<const std::string, Fields::mapped_type> by_hand{"record.admin_comment",
                                                                    "paid by x"};
    EXPECT_THAT(with({by_hand, {"account", "bio"}}), StartsWith("2045: "));
    EXPECT_EQ(with({by_hand, {"reservation", "course_x"}}), " | ");
  }
}

TEST_P(SubmitLua, HostileNamesStayNames) {
  NEED_LUA();
  const std::vector<std::string> names{"\"] = {}, os.exit(7) --", "]]\nos.exit(7)", "a\\",  "a\0b",
                                       "'..os.exit(7)..'",        "é\x7f\r\n",      "%s%d", "--[["};
  auto site = new_site();
  site.models.clear();
  site.partitions.clear();
  for (const auto& name : names) {
    site.models.push_back({name + "m", gib(40), 40, 2});
    site.partitions.push_back({name, {name + "m"}});
    site.gates.partitions.push_back(name);
  }
  site.partitions.push_back({"last", {}});
  site.default_partition = names.front();
  load(site);
  for (const auto& name : names) {
    if (name.find(',') != name.npos) continue;  // several partitions, to Slurm
    EXPECT_THAT(submit({{"tres_per_node", "mps:x:50"}, {"partition", name}}),
                HasSubstr("there is no GPU of model 'x'"));
    EXPECT_THAT(submit({{"tres_per_node", "mps:50"}, {"partition", "last"}}),
                HasSubstr("has no GPU"));
  }
  EXPECT_EQ(submit({{"tres_per_node", "mps:50"}, {"partition", "%s%d"}}),
            "shard:20 | aliquot: mps:50");
}

// Whatever Slurm hands in, no call fails: a job with GPUs is refused, any other passes.
TEST_P(SubmitLua, SurvivesFieldsOfTheWrongKind) {
  NEED_LUA();
  load(old_site());
  EXPECT_EQ(submit({{"tres_per_node", 7}, {"partition", 7}, {"admin_comment", 7}}), "7 | 7");
  EXPECT_EQ(submit({{"tres_per_node", "mps:25"}, {"min_nodes", "x"}, {"num_tasks", "y"}}),
            "shard:35 | aliquot: mps:25");
  EXPECT_EQ(submit({{"tres_per_node", "mps:25"}, {"min_nodes", 0xfffffffe}, {"num_tasks", 0}}),
            "shard:35 | aliquot: mps:25");
}

}  // namespace
}  // namespace aliquot::slurm
