// From a request to a call of the engine and back: paths, bodies, statuses, and when the answer
// comes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/json.hpp"
#include "engine/api_server.hpp"
#include "engine/engine_fixture.hpp"
#include "engine/faulty_disk.hpp"
#include "net/encoding.hpp"

namespace aliquot::engine {
namespace {

class Connection final : public net::Exchange {
 public:
  void answer(net::Response response) override {
    status = response.status;
    body = std::move(response.body);
  }
  void on_close(std::function<void()> hook) override { hooks.push_back(std::move(hook)); }
  void close() {
    for (const auto& hook : std::exchange(hooks, {})) hook();
  }
  int status = 0;
  std::string body;
  std::vector<std::function<void()>> hooks;
};

class ApiServerTest : public testing::Test, public FaultyDisk, public EngineFixture {
 protected:
  std::shared_ptr<Connection> ask(ApiServer& api, const std::string& path,
                                  const std::string& body = "{}", std::uint32_t uid = 1000) {
    return send(api, "POST", path, body, uid);
  }
  static std::shared_ptr<Connection> send(ApiServer& api, const std::string& method,
                                          const std::string& target, const std::string& body = "",
                                          std::uint32_t uid = 1000) {
    auto connection = std::make_shared<Connection>();
    const auto parsed = net::parse_target(target).value();
    api.handle({method, parsed.path, parsed.query, body, {uid, uid, 4'711}},
               net::Responder(connection));
    return connection;
  }
  template <class T>
  static T read(const std::shared_ptr<Connection>& connection) {
    const auto value = api::from_json<T>(connection->body);
    EXPECT_TRUE(value) << connection->body;
    return value.value_or(T{});
  }
};

// The user database may be far away.
TEST_F(ApiServerTest, OnlyWhoIsNotKnownWaitsForTheName) {
  ApiServer api(*engine, [] {});
  users.asking[Uid(1001)];
  const auto unknown = ask(api, "/v1/jobs", api::to_json(spec("gpu:1")), 1001);
  EXPECT_EQ(read<api::JobList>(send(api, "GET", "/v1/jobs", "", 1001)).jobs.size(), 0U);
  const auto known = ask(api, "/v1/jobs", api::to_json(spec("gpu:1")));
  settle();
  EXPECT_EQ(known->status, 200);
  EXPECT_EQ(unknown->status, 0);
  const auto waiting = users.asking.extract(Uid(1001));
  for (const auto& then : waiting.mapped()) then();
  settle();
  ASSERT_EQ(unknown->status, 200) << unknown->body;
  EXPECT_EQ(read<api::JobInfo>(send(api, "GET", "/v1/jobs/2", "", 1001)).user, "u1001");
}

// A plan is large: each user has one that is not made yet, and nobody one for whom nobody waits.
TEST_F(ApiServerTest, AQuestionGoesWithItsClient) {
  ApiServer api(*engine, [] {});
  auto array = spec("gpu:1");
  array.time_limit_ms = minutes(10).value();
  array.array = "0-1000";
  for (std::uint32_t i = 0; i < 9; ++i) submit(array, Uid(1000 + i));
  engine->settle();
  ASSERT_FALSE(engine->forecast().unfinished());
  const auto wanted = api::to_json(spec("gpu:4"));
  const auto first = ask(api, "/v1/jobs?test=1", wanted);
  ASSERT_EQ(first->status, 0) << "it takes longer than that";
  const auto second = ask(api, "/v1/jobs?test=1", wanted);
  EXPECT_EQ(second->status, 503);
  EXPECT_THAT(second->body, testing::HasSubstr("try again"));
  const auto other = ask(api, "/v1/jobs?test=1", wanted, 1001);
  EXPECT_EQ(other->status, 0);
  first->close();
  const auto third = ask(api, "/v1/jobs?test=1", wanted);
  EXPECT_EQ(third->status, 0);
  other->close();
  third->close();
  EXPECT_FALSE(engine->forecast().unfinished()) << "nothing is left to find out";
}

TEST_F(ApiServerTest, SubmitsListsShowsAndCancels) {
  ApiServer api(*engine, [] {});
  const auto submitted = ask(api, "/v1/jobs", api::to_json(spec("gpu:1")));
  EXPECT_EQ(submitted->status, 0) << "it is not on record yet";
  settle();
  ASSERT_EQ(submitted->status, 200);
  EXPECT_EQ(read<api::Submitted>(submitted).job_id, 1);

  const auto list = read<api::JobList>(send(api, "GET", "/v1/jobs"));
  ASSERT_EQ(list.jobs.size(), 1U);
  EXPECT_EQ(list.jobs[0].state, "RUNNING");
  EXPECT_EQ(list.jobs[0].work_dir, "/tmp");
  const auto brief = send(api, "GET", "/v1/jobs?brief&user=u1000");
  EXPECT_THAT(brief->body, testing::Not(testing::HasSubstr("work_dir")));
  EXPECT_TRUE(read<api::JobList>(send(api, "GET", "/v1/jobs?user=nobody")).jobs.empty());
  EXPECT_EQ(read<api::JobInfo>(send(api, "GET", "/v1/jobs/1")).gpus.size(), 1U);
  EXPECT_EQ(send(api, "GET", "/v1/jobs/1?script=1")->body, "#!/bin/sh\n");
  EXPECT_EQ(send(api, "GET", "/v1/jobs/1?script=1", "", 1001)->status, 403);
  EXPECT_EQ(read<api::WhyInfo>(send(api, "GET", "/v1/jobs/1/why")).state, "RUNNING");
  EXPECT_EQ(read<api::ClusterInfo>(send(api, "GET", "/v1/cluster")).node.gpus.size(), 4U);
  EXPECT_EQ(read<api::JobList>(send(api, "GET", "/v1/accounting?user=u1000")).jobs.size(), 1U);

  const auto waiter = send(api, "GET", "/v1/jobs/1/wait");
  EXPECT_EQ(waiter->status, 0);
  const auto cancelled = ask(api, "/v1/jobs/1/cancel");
  settle();
  EXPECT_EQ(cancelled->status, 200);
  end(1);
  EXPECT_EQ(read<api::JobInfo>(waiter).state, "CANCELLED");
}

TEST_F(ApiServerTest, NamesWhatIsWrongWithARequest) {
  ApiServer api(*engine, [] {});
  for (const char* path : {"/", "/v1", "/v2/jobs", "/v1/nothing", "/v1/jobs/1/fly"}) {
    EXPECT_EQ(send(api, "POST", path, "{}")->status, 404) << path;
  }
  EXPECT_EQ(send(api, "PUT", "/v1/jobs")->status, 405);
  const auto typo = ask(api, "/v1/jobs", R"({"nice":"much"})");
  EXPECT_EQ(typo->status, 400);
  EXPECT_EQ(read<api::ErrorInfo>(typo).message, "nice: expected a whole number in range");
  const auto missing = ask(api, "/v1/jobs/7/cancel");
  EXPECT_EQ(missing->status, 404);
  EXPECT_EQ(read<api::ErrorInfo>(missing).code, "ESLURM_INVALID_JOB_ID");
  submit(spec());
  const auto update = ask(api, "/v1/jobs/1/update", R"({"time_limit_ms":"soon"})");
  EXPECT_EQ(update->status, 400);
  EXPECT_EQ(read<api::ErrorInfo>(update).code, "ESLURM_INVALID_JOB_TEXT");
}

TEST_F(ApiServerTest, DrainsWithItsOwnRequest) {
  ApiServer api(*engine, [] {});
  EXPECT_EQ(ask(api, "/v1/node/drain", R"({"reason":"fans"})")->status, 403);
  const auto drained = ask(api, "/v1/node/drain", R"({"reason":"fans"})", 0);
  settle();
  EXPECT_EQ(drained->status, 200);
  const auto node = read<api::ClusterInfo>(send(api, "GET", "/v1/cluster")).node;
  EXPECT_EQ(node.state, "drained");
  EXPECT_EQ(node.reason, "fans");
  ask(api, "/v1/node/resume", "", 0);
  settle();
  EXPECT_EQ(read<api::ClusterInfo>(send(api, "GET", "/v1/cluster")).node.state, "idle");
}

TEST_F(ApiServerTest, AnswersWhoRunsItselfWhenTheMachineHasLetItIn) {
  ApiServer api(*engine, [] {});
  auto wanted = spec();
  wanted.batch = false;
  const auto client = ask(api, "/v1/allocations", api::to_json(wanted));
  engine->settle();
  EXPECT_EQ(state(1), "RUNNING");
  EXPECT_EQ(client->status, 0) << "it is not inside yet";
  settle();
  ASSERT_EQ(client->status, 200);
  EXPECT_EQ(read<api::Allocation>(client).environment.at(0), "SLURM_JOB_ID=1");
  const auto step = ask(api, "/v1/jobs/1/steps");
  settle();
  ASSERT_EQ(step->status, 200);
  EXPECT_EQ(read<api::Allocation>(step).step_id, 0);
  step->close();
  settle();
  EXPECT_EQ(job(1).steps.at(0).state, "CANCELLED");

  executor.cannot_start = "no such group";
  const auto refused = ask(api, "/v1/jobs/1/steps");
  settle();
  EXPECT_EQ(refused->status, 500);
  EXPECT_EQ(read<api::ErrorInfo>(refused).message, "no such group");
  EXPECT_EQ(job(1).steps.size(), 1U);
  const auto other = ask(api, "/v1/allocations", api::to_json(wanted));
  settle();
  EXPECT_EQ(other->status, 500);
  EXPECT_EQ(read<api::ErrorInfo>(other).code, "ESLURM_JOB_LAUNCH");
  EXPECT_EQ(state(2), "FAILED");
  EXPECT_EQ(engine->ledger().size(), 1U);
  client->close();
  settle();
  EXPECT_EQ(engine->ledger().size(), 0U);
}

TEST_F(ApiServerTest, AStepWhoseJobEndsFirstIsRefused) {
  ApiServer api(*engine, [] {});
  const auto id = submit(spec());
  const auto step = ask(api, "/v1/jobs/1/steps");
  engine->settle();
  executor.end(id, 0);
  executor.admitted_steps.clear();  // the machine never gets to it
  settle();
  EXPECT_EQ(step->status, 409);
  EXPECT_EQ(state(id), "COMPLETED");
}

TEST_F(ApiServerTest, AStepIsRefusedWhereTheRecordFails) {
  ApiServer api(*engine, [] {});
  submit(spec());
  writes = 0;
  const auto other = ask(api, "/v1/jobs/1/hold", "{}", 0);
  const auto cancel = ask(api, "/v1/jobs/1/cancel");
  const auto step = ask(api, "/v1/jobs/1/steps");
  settle();
  EXPECT_EQ(cancel->status, 503);
  EXPECT_NE(step->status, 200);
  EXPECT_NE(step->status, 0) << "nobody is left without an answer";
  mend();
  settle();
  EXPECT_EQ(state(1), "RUNNING");
}

TEST_F(ApiServerTest, WhoComesBackKeepsItsJobWhateverBecomesOfOthersRequests) {
  const auto batch = submit(spec());
  auto wanted = spec();
  wanted.batch = false;
  const auto asked = engine->clients().allocate({Uid(1000)}, wanted, [](auto) {});
  ASSERT_TRUE(asked);
  settle();
  const auto id = asked->value();
  ASSERT_EQ(state(id), "RUNNING");
  crash();
  ApiServer api(*engine, [] {});
  writes = 0;
  const auto other = ask(api, "/v1/jobs/" + std::to_string(batch) + "/cancel");
  const auto client = ask(api, "/v1/jobs/" + std::to_string(id) + "/attach");
  settle();
  EXPECT_EQ(other->status, 503);
  EXPECT_EQ(client->status, 200) << "there was nothing to write down for it";
  mend();
  clock.advance(minutes(2));
  settle();
  EXPECT_EQ(state(id), "RUNNING");
  client->close();
  settle();
  EXPECT_NE(state(id), "RUNNING");
}

}  // namespace
}  // namespace aliquot::engine
