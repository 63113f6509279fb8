#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cli/account/book_edit.hpp"
#include "cli/account/book_show.hpp"
#include "cli/account/tres_text.hpp"

namespace aliquot::cli {
namespace {

using testing::HasSubstr;

api::AccountBook first_account_book() {
  api::AccountBook book;
  book.qos.push_back({.name = "normal", .description = "Normal QOS default"});
  book.accounts.push_back({"root", "default root account", "root"});
  book.users.push_back({"root", "root"});
  book.associations.push_back({.account = "root", .qos = {"normal"}});
  book.associations.push_back({.account = "root", .user = "root"});
  return book;
}

struct AccountLab {
  api::AccountBook book = first_account_book();
  std::string text;

  using Edit = Result<Edited> (*)(api::AccountBook&, Entity, const EditWords&, const std::string&);
  void run(Edit edit, Entity entity, const std::vector<std::string_view>& words) {
    const auto edited = edit(book, entity, parse_edit_words(words, edit == add_to_book), "lab");
    text += edited ? edited->complaint + edited->text : edited.error().message + "\n";
  }
};

AccountLab golden_lab() {
  AccountLab lab;
  lab.run(add_to_book, Entity::account, {"vision", "Description=vision lab", "Organization=cs"});
  lab.run(add_to_book, Entity::account,
          {"nlp", "Description='nlp lab'", "Organization=cs", "Fairshare=2"});
  lab.run(add_to_book, Entity::qos,
          {"high", "Priority=1000", "MaxWall=1:00:00", "MaxTRESPerUser=gres/gpu=2"});
  lab.run(add_to_book, Entity::user, {"games", "Account=vision"});
  lab.run(add_to_book, Entity::user, {"daemon", "Account=nlp"});
  lab.run(add_to_book, Entity::user, {"root", "Account=vision"});
  lab.run(modify_book, Entity::user, {"games", "set", "qos+=normal,high"});
  return lab;
}

// Slurm's own words for the same commands.
TEST(Sacctmgr, TellsWhatItAddsAsSlurmDoes) {
  EXPECT_EQ(golden_lab().text, R"( Adding Account(s)
  vision
 Settings
  Description     = vision lab
  Organization    = cs
 Associations
  A = vision     C = lab       
 Settings
  Parent        = root
 Adding Account(s)
  nlp
 Settings
  Description     = nlp lab
  Organization    = cs
 Associations
  A = nlp        C = lab       
 Settings
  Fairshare     = 2
  Parent        = root
 Adding QOS(s)
  high
 Settings
  Description    = high
  MaxTRESPerUser           = gres/gpu=2
  MaxWall                  = 01:00:00
  Priority                 = 1000
 Adding User(s)
  games
 Associations =
  U = games     A = vision     C = lab       
 Non Default Settings
 Adding User(s)
  daemon
 Associations =
  U = daemon    A = nlp        C = lab       
 Non Default Settings
 Associations =
  U = root      A = vision     C = lab       
 Non Default Settings
 Modified user associations...
  C = lab        A = vision               U = games    
)");
}

std::string table_of(const ShowWanted& wanted, const ShowLayout& layout = {}) {
  api::ClusterInfo cluster;
  cluster.cluster = "lab";
  cluster.node.gpus.resize(4);
  for (auto& gpu : cluster.node.gpus) gpu.model = "h100";
  const auto text = show_book(golden_lab().book, cluster, wanted, layout);
  return text ? *text : text.error().message;
}

TEST(Sacctmgr, ShowsAsSlurmDoes) {
  EXPECT_EQ(table_of({.entity = Entity::account}),
            "   Account                Descr                  Org \n"
            "---------- -------------------- -------------------- \n"
            "       nlp              nlp lab                   cs \n"
            "      root default root account                 root \n"
            "    vision           vision lab                   cs \n");
  EXPECT_EQ(table_of({.entity = Entity::user}),
            "      User   Def Acct     Admin \n"
            "---------- ---------- --------- \n"
            "    daemon        nlp      None \n"
            "     games     vision      None \n"
            "      root       root Administ+ \n");
  EXPECT_EQ(table_of({.entity = Entity::tres}),
            "    Type            Name     ID \n"
            "-------- --------------- ------ \n"
            "     cpu                      1 \n"
            "     mem                      2 \n"
            "  energy                      3 \n"
            "    node                      4 \n"
            " billing                      5 \n"
            "      fs            disk      6 \n"
            "    vmem                      7 \n"
            "   pages                      8 \n"
            "    gres             gpu   1001 \n"
            "    gres        gpu:h100   1002 \n");
  EXPECT_EQ(table_of({.entity = Entity::association,
                      .tree = true,
                      .format = "account,user,share,grptres,qos"}),
            "Account                    User     Share       GrpTRES                  QOS \n"
            "-------------------- ---------- --------- ------------- -------------------- \n"
            "root                                    1                             normal \n"
            " root                      root         1                             normal \n"
            " nlp                                    2                             normal \n"
            "  nlp                    daemon         1                             normal \n"
            " vision                                 1                             normal \n"
            "  vision                  games         1                        high,normal \n"
            "  vision                   root         1                             normal \n");
  EXPECT_EQ(
      table_of({.entity = Entity::association}, {.delimiter = '|'}),
      R"(Cluster|Account|User|Partition|Share|Priority|GrpJobs|GrpTRES|GrpSubmit|GrpWall|GrpTRESMins|MaxJobs|MaxTRES|MaxTRESPerNode|MaxSubmit|MaxWall|MaxTRESMins|QOS|Def QOS|GrpTRESRunMins
lab|root|||1|||||||||||||normal||
lab|root|root||1|||||||||||||normal||
lab|nlp|||2|||||||||||||normal||
lab|nlp|daemon||1|||||||||||||normal||
lab|vision|||1|||||||||||||normal||
lab|vision|games||1|||||||||||||high,normal||
lab|vision|root||1|||||||||||||normal||
)");
  EXPECT_EQ(
      table_of({.entity = Entity::qos}, {.delimiter = '|', .trailing = true}),
      R"(Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageThres|UsageFactor|GrpTRES|GrpTRESMins|GrpTRESRunMins|GrpJobs|GrpSubmit|GrpWall|MaxTRES|MaxTRESPerNode|MaxTRESMins|MaxWall|MaxTRESPU|MaxJobsPU|MaxSubmitPU|MaxTRESPA|MaxJobsPA|MaxSubmitPA|MinTRES|
normal|0|00:00:00|||cluster|||1.000000||||||||||||||||||
high|1000|00:00:00|||cluster|||1.000000||||||||||01:00:00|gres/gpu=2|||||||
)");
  // As Open OnDemand asks.
  EXPECT_EQ(table_of({.entity = Entity::user,
                      .users = {"games"},
                      .with_associations = true,
                      .format = "account,qos"},
                     {.header = false, .delimiter = '|'}),
            "vision|high,normal\n");
  EXPECT_EQ(table_of({.entity = Entity::user, .format = "nope"}), "Unknown field 'nope'");
}

TEST(Sacctmgr, RefusesWhatItDoesNotKeep) {
  AccountLab lab = golden_lab();
  lab.text.clear();
  lab.run(add_to_book, Entity::account, {"vision"});
  EXPECT_EQ(lab.text, " Nothing new added.\n");
  const auto refused = [](auto edit, Entity entity, std::vector<std::string_view> words) {
    AccountLab one = golden_lab();
    const auto before = one.book;
    one.text.clear();
    one.run(edit, entity, words);
    return one.text;
  };
  EXPECT_THAT(refused(modify_book, Entity::qos, {"high", "set", "GrpWall=3"}),
              HasSubstr(" Unknown option: GrpWall=3\n"));
  EXPECT_THAT(refused(modify_book, Entity::qos, {"high", "set", "GrpTRES=gres/shard=3"}),
              HasSubstr("write gres/gpu=0.5"));
  EXPECT_THAT(refused(modify_book, Entity::qos, {"high", "set", "MaxJobsPU=many"}),
              HasSubstr("Invalid value for MaxJobsPerUser (many)"));
  EXPECT_EQ(refused(modify_book, Entity::qos, {"nope", "set", "Priority=1"}),
            " Nothing modified\n");
  EXPECT_EQ(refused(add_to_book, Entity::user, {"ann"}), " Need name of account to add user to.\n");
  EXPECT_THAT(refused(add_to_book, Entity::user, {"ann", "account=nope"}),
              HasSubstr("'nope' doesn't exist"));
  EXPECT_EQ(refused(delete_from_book, Entity::qos, {"nope"}), " Nothing deleted\n");
  EXPECT_THAT(refused(add_to_book, Entity::cluster, {"x"}), HasSubstr("only cluster"));
}

TEST(Sacctmgr, Deletes) {
  AccountLab lab = golden_lab();
  lab.text.clear();
  lab.run(delete_from_book, Entity::user, {"root", "account=vision"});
  lab.run(delete_from_book, Entity::qos, {"where", "name=high"});
  lab.run(delete_from_book, Entity::account, {"nlp"});
  EXPECT_EQ(lab.text,
            " Deleting user associations...\n"
            "  C = lab        A = vision     U = root     \n"
            " Deleting QOS(s)...\n  high\n"
            " Deleting accounts...\n  nlp\n");
  EXPECT_EQ(lab.book.users.size(), 2U) << "daemon was in nlp alone";
  EXPECT_EQ(lab.book.associations.size(), 4U);
  lab.run(delete_from_book, Entity::user, {"games"});
  EXPECT_EQ(lab.book.users.size(), 1U);
}

TEST(Tres, IsReadInEveryWayItIsWritten) {
  api::TresLimit limit;
  ASSERT_TRUE(read_tres("gres/gpu=4,cpu=8,mem=64G", limit));
  EXPECT_EQ(format_tres(limit), "cpu=8,mem=64G,gres/gpu=4");
  for (const char* text : {"gres=gpu/4", "gres/gpu:4", "gres/gpu=4", "GRES/GPU=4.0"}) {
    api::TresLimit one;
    ASSERT_TRUE(read_tres(text, one)) << text;
    EXPECT_EQ(one.gpus, 40'000) << text;
  }
  ASSERT_TRUE(read_tres("gres/gpu=0.25,cpu=-1", limit));
  EXPECT_EQ(format_tres(limit), "mem=64G,gres/gpu=0.25");
  for (const char* text : {"", "gpu=4", "gres/gpu", "gres/gpu=", "gres/gpu=1.23456", "cpu=x",
                           "mem=", "gres/gpu:h100=2", "node=1", "gres/gpu=1e9", ","}) {
    EXPECT_FALSE(read_tres(text, limit)) << text;
  }
  EXPECT_EQ(format_tres(limit), "mem=64G,gres/gpu=0.25");
}

RC_GTEST_PROP(TresProperty, ComesBackAsItWasWritten, ()) {
  api::TresLimit limit;
  if (*rc::gen::arbitrary<bool>()) limit.gpus = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
  if (*rc::gen::arbitrary<bool>()) limit.cpus = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
  if (*rc::gen::arbitrary<bool>()) limit.memory = *rc::gen::inRange<std::int64_t>(1, 1'000'000'000);
  const auto text = format_tres(limit);
  if (text.empty()) return;
  api::TresLimit back;
  RC_ASSERT(read_tres(text, back).has_value());
  RC_ASSERT(back == limit);
}

}  // namespace
}  // namespace aliquot::cli
