// Any words a user may find: the Lua that slurmctld runs books and refuses as the C++ does.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.hpp"
#include "core/request_words.hpp"
#include "slurm/booking_model_test.hpp"
#include "slurm/lua_host_test.hpp"
#include "slurm/site_settings.hpp"
#include "slurm/submit_lua.hpp"

namespace aliquot::slurm {
namespace {

using namespace test;

class SubmitLuaWords : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Each, SubmitLuaWords, ::testing::ValuesIn(test::interpreters_or_none()),
                         test::name_of_interpreter);

// The words of users, most of them right, some broken in one place.
// Evenly, whatever RapidCheck thinks of small cases.
int between(int from, int to) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(from, to));
}

// Any letter with any ending, most often one that is known: a unit that only one side accepts comes
// up here.
std::string any_unit() {
  const std::string known = "kmgtpb";
  const int letter =
      between(0, 3) == 0 ? 'a' + between(0, 26) : known[static_cast<std::size_t>(between(0, 6))];
  const std::string unit(1, static_cast<char>(letter - (between(0, 2) == 0 ? 0 : 'a' - 'A')));
  return unit + *rc::gen::element<std::string>("", "", "", "b", "B", "ib", "iB", "i", "k");
}

std::string any_number() {
  if (between(0, 10) != 0) return std::to_string(between(0, 130));
  if (between(0, 3) == 0) return std::to_string(between(0, 10)) + any_unit();
  return *rc::gen::element<std::string>("", "-1", "1.5", "x", "9223372036854775807", "007", "1e3",
                                        "18446744073709551616", "4503599627370496", "8K", "1p",
                                        "0x10", " 1", "25%");
}

std::string any_model() {
  return *rc::gen::element<std::string>("h200", "H200", "a100", "A100", "b200", "1g.10gb", "3090",
                                        "x y", "gpu", "none", "8k");
}

std::string any_entry() {
  std::string entry = *rc::gen::element<std::string>("", "", "", "gres:", "gres/");
  entry += *rc::gen::element<std::string>("gpu", "gpu", "gpu", "mps", "mps", "shard", "shard",
                                          "GPU", "Mps");
  const auto separator = *rc::gen::element<std::string>(":", ":", ":", "=");
  if (between(0, 3) == 0) entry += separator + any_model();
  if (between(0, 8) != 0) entry += separator + any_number();
  return entry;
}

std::string any_gres() {
  std::string text = any_entry();
  for (int more = *rc::gen::element(0, 0, 0, 0, 0, 1, 2); more > 0; --more) {
    text += "," + (between(0, 6) == 0 ? std::string() : any_entry());
  }
  return text;
}

std::string any_gpus() {
  std::string text;
  if (between(0, 3) == 0) text += any_model() + ":";
  text += between(0, 4) == 0 ? any_number() : std::to_string(between(0, 5));
  return text;
}

std::string any_size() {
  if (between(0, 8) == 0) {
    return *rc::gen::element<std::string>("", "0", "8X", "50%", "-1G", "1.0000000001G", "8 G",
                                          ".5G", "5.G", "1.5B", "99999999T", "8388608T", "1..5G");
  }
  const bool bare = between(0, 8) == 0;  // M may be left out
  const std::string unit = bare ? "M" : any_unit();
  const auto place = std::string("bkmgtp").find(to_lower(unit).front());
  const int power = place == std::string::npos ? 30 : 10 * static_cast<int>(place);
  // Mostly about as much as a GPU has, whatever the unit: a unit that only one side knows must not
  // be refused for its amount.
  const double amount = between(0, 160) + between(0, 100) / 100.0;
  const double number = between(0, 4) == 0 ? amount : std::ldexp(amount, 30 - power);
  const int decimals = power > 30 ? between(3, 10) : between(0, 2) == 0 ? between(1, 8) : 0;
  return fmt::format("{:.{}f}{}", number, decimals, bare ? "" : unit);
}

std::string any_share() {
  if (between(0, 8) == 0) {
    return *rc::gen::element<std::string>("", "0", "0%", "0.5", "-5%", "101%", "100.01", "abc",
                                          "5%%", "1.234%", "1e2", "99999999999999999999%", "%",
                                          "5.%");
  }
  std::string text = std::to_string(between(0, 101));
  if (between(0, 2) == 0) text += "." + std::to_string(between(0, 100));
  return text + *rc::gen::element<std::string>("", "%", "%");
}

SiteTable any_lua_site() {
  auto site = *rc::gen::element(old_site(), new_site());
  site.overcommit = Compute(*rc::gen::element<std::int64_t>(10'000, 12'345, 20'000, 100'000));
  const auto unit = *rc::gen::element(gib(1), mib(1), Bytes(999'999'937), gib(7));
  if (*rc::gen::arbitrary<bool>()) site.models.front().memory = gib(41);
  site.mps_per_gpu = *rc::gen::element<std::int64_t>(100, 7, 999'983);
  for (auto& model : site.models) model.shards = shards_of(model.memory, unit);
  for (auto& partition : site.partitions) {
    partition.shared = *rc::gen::arbitrary<bool>();
    if (*rc::gen::arbitrary<bool>()) partition.share.overcommit = kWholeGpu * 3;
    if (*rc::gen::arbitrary<bool>()) partition.share.mps_per_gpu = 80;
    if (*rc::gen::arbitrary<bool>()) partition.share.shards_per_gpu = 5;
  }
  site.partitions.back().foreign = *rc::gen::arbitrary<bool>();
  return site;
}

std::optional<std::string> maybe(int one_in, std::string (*any)()) {
  if (between(0, one_in) != 0) return std::nullopt;
  return any();
}

// The job as sbatch describes it, and the options as core reads them.
struct Asked {
  core::GpuOptions options;
  Fields fields;
  std::vector<std::string> spank;
};

Asked any_asked() {
  Asked asked;
  auto& options = asked.options;
  // One way to ask, mostly; else whatever comes together.
  const int way = between(0, 6);
  const bool mixed = way == 0;
  if (way <= 3) options.gres = maybe(mixed ? 2 : 1, any_gres);
  if (mixed || way == 4) options.gpus = maybe(mixed ? 4 : 2, any_gpus);
  if (mixed) options.gpus_per_task = maybe(4, any_gpus);
  if (mixed || way >= 4) options.gpu_mem = maybe(mixed ? 4 : 2, any_size);
  if (mixed || way >= 4) options.gpu_share = maybe(mixed ? 4 : 2, any_share);
  options.nodes = *rc::gen::element<std::int64_t>(1, 1, 1, 2, 3, 1'000'000);
  options.tasks = *rc::gen::element<std::int64_t>(1, 1, 2, 3, 4'000'000'000);
  // An option without a value is none, to sbatch.
  for (auto* text : {&options.gres, &options.gpus, &options.gpus_per_task}) {
    if (text->has_value() && (*text)->empty()) text->reset();
  }
  const bool old = *rc::gen::arbitrary<bool>();
  const std::string prefix = old ? "gres:gpu:" : "gres/gpu:";
  if (options.gres) asked.fields["tres_per_node"] = *options.gres;
  if (options.gpus) asked.fields["tres_per_job"] = prefix + *options.gpus;
  if (options.gpus_per_task) asked.fields["tres_per_task"] = prefix + *options.gpus_per_task;
  asked.fields["min_nodes"] = options.nodes;
  asked.fields["num_tasks"] = options.tasks;
  const std::string spank = "_SLURM_SPANK_OPTION_aliquot_";
  if (options.gpu_mem) asked.spank.push_back(spank + "gpu_mem=" + *options.gpu_mem);
  if (options.gpu_share) asked.spank.push_back(spank + "gpu_share=" + *options.gpu_share);
  return asked;
}

bool asks_for_a_part(const core::GpuOptions& options) {
  if (options.gpu_mem || options.gpu_share) return true;
  const auto gres = to_lower(options.gres.value_or(""));
  return gres.find("mps") != gres.npos || gres.find("shard") != gres.npos;
}

// Whether a whole GPU there may meet shares, which this version of Slurm does not keep apart.
bool may_mix(const SiteTable& site, const std::string& partitions) {
  if (!site.whole_as_shards) return false;
  const std::string named = partitions.empty() ? site.default_partition : partitions;
  return std::ranges::any_of(split(named, ','), [&](const auto& name) {
    const auto found = std::ranges::find(site.partitions, name, &PartitionGpus::name);
    return found == site.partitions.end() || found->shared;
  });
}

// Whether shards were booked.
bool hold_lua_to_core(LuaHost& host, const SiteTable& site) {
  const auto asked = any_asked();
  const auto partition =
      *rc::gen::element<std::string>("", "main", "mixed", "cpu,main", "cpu", "new");
  auto fields = asked.fields;
  if (!partition.empty()) fields["partition"] = partition;

  const auto expected = book(site, partition, asked.options);
  const auto called = host.submit(fields, asked.spank);
  RC_LOG() << "fields:";
  for (const auto& [key, value] : fields)
    RC_LOG() << ' ' << key << '=' << Called{"", fields}.text(key);
  RC_LOG() << "\nspank: " << fmt::format("{}", fmt::join(asked.spank, " ")) << "\nbook: "
           << (expected ? expected->gres + " for " + expected->words : expected.error().message)
           << "\nlua: " << called.code << ' ' << called.text("tres_per_node") << " ("
           << called.text("admin_comment") << ") " << called.text("user") << called.text("log")
           << '\n';
  RC_ASSERT((called.code == "0" || called.code == "2072" || called.code == "2014"));
  const auto comment = called.text("admin_comment");
  if (!expected) {
    if (!called.refused()) {
      // Whole GPUs in Slurm's words that are not ours: left as they are.
      RC_ASSERT(!asks_for_a_part(asked.options));
      RC_ASSERT(called.text("tres_per_node") == asked.options.gres.value_or(""));
      RC_ASSERT((called.fields.contains("shared") == may_mix(site, partition)));
    } else {
      RC_ASSERT(!called.text("user").empty());
      RC_ASSERT((called.text("user").find('\n') == std::string::npos));
    }
    return false;
  }
  RC_ASSERT(!called.refused());
  RC_ASSERT((called.fields.contains("shared") == expected->exclusive));
  if (expected->kind == Booking::Kind::shards) {
    RC_ASSERT(called.text("tres_per_node") == expected->gres);
    RC_ASSERT(
        (!called.fields.contains("tres_per_job") && !called.fields.contains("tres_per_task")));
  } else {
    RC_ASSERT(called.text("tres_per_node") == asked.options.gres.value_or(""));
  }
  if (expected->kind == Booking::Kind::none) {
    RC_ASSERT(comment.empty());
    return false;
  }
  if (expected->words.empty()) {
    RC_ASSERT(comment.empty());
    return false;
  }
  RC_ASSERT(comment == "aliquot: " + expected->words);
  const auto read_back = core::parse_request(expected->words);
  RC_ASSERT(read_back.has_value());
  RC_ASSERT((read_back->gpus == core::parse_gpu_options(asked.options).value()));
  return expected->kind == Booking::Kind::shards;
}

// A hundred sites, fifty jobs each; enough of them must get through for the rest to mean anything.
TEST_P(SubmitLuaWords, AreBookedAsCoreBooksThem) {
  NEED_LUA();
  int booked = 0;
  EXPECT_TRUE(rc::check("the Lua books and refuses as the C++ does", [&] {
    const auto site = any_lua_site();
    LuaHost host(GetParam(), {make_submit_lua(site)});
    for (int i = 0; i < 50; ++i) booked += hold_lua_to_core(host, site) ? 1 : 0;
  }));
  EXPECT_GT(booked, 500);
}

}  // namespace
}  // namespace aliquot::slurm
