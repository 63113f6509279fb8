// Memory that is held by more than one process, or only by a descriptor: charged while it exists,
// and once.
#include <gtest/gtest.h>
#include <unistd.h>

#include "enforce/job.hpp"

namespace aliquot::enforce::test {
namespace {

using standin::test::Machine;

std::string gib(std::uint64_t count) { return std::to_string(count * kGiB); }
std::string name_of(const char* what) { return "aliquot-" + std::to_string(getpid()) + what; }

TEST(Sharing, what_only_a_descriptor_holds_is_charged_until_it_is_closed) {
  Machine machine("h200:1");
  Job job(machine, {{0, 10 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(victim.tell("export " + gib(2)), 0) << i;
  EXPECT_EQ(job.charged(), kContext + 8 * kGiB);
  EXPECT_EQ(machine.used(0), kContext + 8 * kGiB);
  EXPECT_EQ(victim.tell("export " + gib(2)), kOutOfMemory);
  EXPECT_EQ(victim.tell("alloc " + gib(2)), kOutOfMemory);
  // With the last descriptor the memory goes, and with it the charge.
  for (int i = 0; i < 3; ++i) ASSERT_EQ(victim.tell("close"), 0);
  EXPECT_EQ(victim.tell("alloc " + gib(7)), 0);
  EXPECT_EQ(job.charged(), machine.used(0));
}

TEST(Sharing, a_descriptor_on_its_way_to_another_process_counts) {
  Machine machine("h200:1");
  Job job(machine, {{0, 6 * kGiB}});
  Victim owner(&job);
  Victim helper(nullptr);  // of the same user, without the GPU
  ASSERT_EQ(owner.begin(), 0);
  ASSERT_EQ(owner.tell("export " + gib(4)), 0);
  helper.send("take " + name_of("a"));
  ASSERT_EQ(owner.tell("pass " + name_of("a")), 0);
  ASSERT_EQ(helper.answer(), 0);
  // The owner has closed its own. The helper's holds the memory.
  EXPECT_EQ(machine.used(0), kContext + 4 * kGiB);
  EXPECT_EQ(owner.tell("alloc " + gib(2)), kOutOfMemory);
  ASSERT_EQ(helper.tell("close"), 0);
  EXPECT_EQ(owner.tell("alloc " + gib(5)), 0);
  EXPECT_EQ(job.charged(), machine.used(0));
}

TEST(Sharing, a_descriptor_that_outlives_its_owner_counts_until_nobody_has_it) {
  Machine machine("h200:1");
  Job job(machine, {{0, 6 * kGiB}});
  Victim helper(nullptr);
  {
    Victim owner(&job);
    ASSERT_EQ(owner.begin(), 0);
    ASSERT_EQ(owner.tell("export " + gib(4)), 0);
    helper.send("take " + name_of("b"));
    ASSERT_EQ(owner.tell("pass " + name_of("b")), 0);
    ASSERT_EQ(helper.answer(), 0);
    owner.kill();
  }
  EXPECT_EQ(machine.used(0), 4 * kGiB);
  Victim next(&job);
  ASSERT_EQ(next.begin(), 0);
  EXPECT_EQ(next.tell("alloc " + gib(2)), kOutOfMemory);
  ASSERT_EQ(helper.tell("close"), 0);
  EXPECT_EQ(next.tell("alloc " + gib(5)), 0);
}

TEST(Sharing, an_import_is_counted_once_and_stays_when_the_owner_goes) {
  Machine machine("h200:1");
  Job job(machine, {{0, 8 * kGiB}});
  Victim owner(&job);
  Victim importer(&job);
  ASSERT_EQ(owner.begin(), 0);
  ASSERT_EQ(importer.begin(), 0);
  ASSERT_EQ(owner.tell("export " + gib(4) + " 1"), 0);
  importer.send("take " + name_of("c"));
  ASSERT_EQ(owner.tell("pass " + name_of("c")), 0);
  ASSERT_EQ(importer.answer(), 0);
  ASSERT_EQ(importer.tell("import"), 0);
  ASSERT_EQ(importer.tell("close"), 0);
  EXPECT_EQ(machine.used(0), 2 * kContext + 4 * kGiB);
  EXPECT_EQ(job.charged(), machine.used(0));
  EXPECT_EQ(job.use().imports, 1U);
  // Once: what is left can be had.
  ASSERT_EQ(owner.tell("alloc " + gib(2)), 0);
  ASSERT_EQ(owner.tell("free 0"), 0);
  owner.kill();
  EXPECT_EQ(machine.used(0), kContext + 4 * kGiB);
  EXPECT_EQ(importer.tell("alloc " + gib(4)), kOutOfMemory);
  EXPECT_EQ(importer.tell("alloc " + gib(3)), 0);
  ASSERT_EQ(importer.tell("free 0"), 0);
  ASSERT_EQ(importer.tell("drop"), 0);
  EXPECT_EQ(machine.used(0), kContext);
  EXPECT_EQ(importer.tell("alloc " + gib(6)), 0);
}

TEST(Sharing, a_block_that_its_owner_frees_counts_while_another_has_it_open) {
  Machine machine("h200:1");
  Job job(machine, {{0, 8 * kGiB}});
  Victim owner(&job);
  Victim other(&job);
  ASSERT_EQ(owner.begin(), 0);
  ASSERT_EQ(other.begin(), 0);
  ASSERT_EQ(owner.tell("alloc " + gib(4)), 0);
  ASSERT_EQ(owner.tell("handle"), 0);
  const std::string handle = owner.text().substr(owner.text().find("handle=") + 7);
  ASSERT_EQ(other.tell("open " + handle), 0);
  ASSERT_EQ(owner.tell("free 0"), 0);
  EXPECT_EQ(machine.used(0), 2 * kContext + 4 * kGiB);
  // The other one does nothing meanwhile.
  EXPECT_EQ(owner.tell("alloc " + gib(4)), kOutOfMemory);
  EXPECT_EQ(owner.tell("alloc " + gib(2)), 0);
  ASSERT_EQ(other.tell("unopen"), 0);
  EXPECT_EQ(job.use().imports, 0U);
  EXPECT_EQ(owner.tell("alloc " + gib(4)), 0);
  EXPECT_LE(machine.used(0), 8 * kGiB);
}

TEST(Sharing, memory_in_a_sparse_array_is_charged_until_it_is_unmapped_or_the_array_goes) {
  Machine machine("h200:1");
  Job job(machine, {{0, 3 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("sparse " + gib(1)), 0);
  EXPECT_EQ(job.charged(), kContext + kGiB);
  EXPECT_EQ(job.charged(), machine.used(0));
  ASSERT_EQ(victim.tell("unsparse"), 0);
  ASSERT_EQ(victim.tell("sparse " + gib(2)), 0);
  EXPECT_EQ(job.charged(), machine.used(0));
  EXPECT_EQ(victim.tell("alloc " + gib(1)), kOutOfMemory);
  ASSERT_EQ(victim.tell("free 1"), 0);
  EXPECT_EQ(victim.tell("alloc " + gib(2)), 0);
  EXPECT_EQ(job.charged(), machine.used(0));
}

}  // namespace
}  // namespace aliquot::enforce::test
