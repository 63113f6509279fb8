// Who may see and do what on the page: by the Unix socket, by TCP, with a token and without.
#include "engine/web.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/json.hpp"
#include "engine/engine_fixture.hpp"
#include "net/encoding.hpp"

namespace aliquot::engine {
namespace {

using testing::HasSubstr;
using testing::Not;

class Browser final : public net::Exchange {
 public:
  void answer(net::Response response) override {
    status = response.status;
    body = std::move(response.body);
  }
  void stream(net::Response head) override { status = head.status; }
  bool push(std::shared_ptr<const std::string> part) override {
    body += *part;
    return true;
  }
  void on_close(std::function<void()>) override {}
  int status = 0;
  std::string body;
};

class WebTest : public testing::Test, public EngineFixture {
 protected:
  WebTest() {
    api::JobSpec wanted = spec("gpu:1");
    wanted.script = "#!/bin/sh\n# secret words\n";
    wanted.command = "secret.sh";
    wanted.environment = {"SECRET=1"};
    wanted.work_dir = "/home/secret";
    ask("POST", "/v1/jobs", api::to_json(wanted), 1000);
    settle();
  }

  std::shared_ptr<Browser> ask(const std::string& method, const std::string& target,
                               const std::string& body = "", std::uint32_t uid = 1000) {
    return send(method, target, body, {uid, uid, 4'711}, {}, false);
  }
  std::shared_ptr<Browser> remote(const std::string& method, const std::string& target,
                                  const std::string& token = "",
                                  const std::string& host = "localhost:9834") {
    net::Peer peer{net::kNoUser, net::kNoUser, 0, "127.0.0.1"};
    std::map<std::string, std::string, std::less<>> headers{{"host", host}};
    if (!token.empty()) headers["authorization"] = "Bearer " + token;
    return send(method, target, "", peer, std::move(headers), true);
  }
  std::shared_ptr<Browser> send(const std::string& method, const std::string& target,
                                const std::string& body, const net::Peer& peer,
                                std::map<std::string, std::string, std::less<>> headers,
                                bool is_remote) {
    auto browser = std::make_shared<Browser>();
    const auto parsed = net::parse_target(target).value();
    net::Request request{method, parsed.path, parsed.query, body, peer, std::move(headers)};
    if (is_remote) {
      web.handle_remote(std::move(request), net::Responder(browser));
    } else {
      web.handle(request, net::Responder(browser));
    }
    return browser;
  }
  std::string token_of(std::uint32_t uid) {
    const auto made = ask("POST", "/v1/token", "{}", uid);
    settle();
    EXPECT_EQ(made->status, 200) << made->body;
    return api::from_json<api::TokenInfo>(made->body).value_or(api::TokenInfo()).token;
  }

  ApiServer api{*engine, [] {}};
  JobLog logs{[](const std::function<void()>& task) { task(); }};
  Web web{*engine, api, logs};
};

TEST_F(WebTest, WithoutATokenOnlyWhatAnybodyMaySee) {
  for (const char* path :
       {"/", "/events", "/metrics", "/metrics/jobs", "/v1/cluster", "/v1/jobs", "/v1/jobs/1",
        "/v1/accounting", "/v1/jobs/1/why", "/v1/shares", "/v1/me"}) {
    const auto seen = remote("GET", path);
    EXPECT_EQ(seen->status, 200) << path << seen->body;
    EXPECT_THAT(seen->body, Not(HasSubstr("secret"))) << path;
    EXPECT_THAT(seen->body, Not(HasSubstr("SECRET"))) << path;
  }
  EXPECT_THAT(remote("GET", "/events")->body, HasSubstr("\"job/1\":"));
  for (const char* path : {"/v1/jobs/1?script=1", "/v1/jobs/1/log"}) {
    EXPECT_EQ(remote("GET", path)->status, 403) << path;
  }
}

TEST_F(WebTest, WithoutATokenNothingIsChanged) {
  for (const char* path :
       {"/v1/jobs", "/v1/jobs/1/cancel", "/v1/jobs/1/hold", "/v1/allocations", "/v1/accounts",
        "/v1/node/drain", "/v1/reconfigure", "/v1/reservations/create"}) {
    EXPECT_EQ(remote("POST", path)->status, 401) << path;
  }
  EXPECT_EQ(remote("POST", "/v1/token")->status, 403);
  settle();
  EXPECT_THAT(remote("GET", "/v1/jobs/1")->body, HasSubstr("RUNNING"));
}

TEST_F(WebTest, ATokenIsItsUsersAndForHisJobsAlone) {
  const std::string mine = token_of(1000);
  const std::string other = token_of(1001);
  EXPECT_THAT(remote("GET", "/v1/me", mine)->body, HasSubstr("\"user\":\"u1000\""));
  EXPECT_THAT(remote("GET", "/v1/jobs/1?script=1", mine)->body, HasSubstr("secret words"));
  EXPECT_EQ(remote("GET", "/v1/jobs/1?script=1", other)->status, 403);
  EXPECT_EQ(remote("GET", "/v1/jobs/1/log", other)->status, 403);
  EXPECT_EQ(remote("POST", "/v1/jobs/1/cancel", other)->status, 403);
  // What needs to know the caller's processes is done elsewhere.
  for (const char* path : {"/v1/jobs", "/v1/allocations", "/v1/jobs/1/steps", "/v1/jobs/1/attach",
                           "/v1/jobs/1/update", "/v1/node/drain", "/v1/token"}) {
    EXPECT_EQ(remote("POST", path, mine)->status, 403) << path;
  }
  const auto done = remote("POST", "/v1/jobs/1/cancel", mine);
  settle();
  EXPECT_EQ(done->status, 200) << done->body;
}

TEST_F(WebTest, WhoSomebodyIsIsSaidOnceHisNameIsKnown) {
  const std::string token = token_of(1000);
  users.asking[Uid(1000)] = {};
  const auto me = remote("GET", "/v1/me", token);
  EXPECT_EQ(me->status, 0);
  const auto waiting = users.asking.extract(Uid(1000));
  ASSERT_EQ(waiting.mapped().size(), 1U);
  waiting.mapped().front()();
  EXPECT_THAT(me->body, HasSubstr("\"user\":\"u1000\""));
}

TEST_F(WebTest, ATokenEnds) {
  const std::string token = token_of(1000);
  clock.advance(hours(7));
  EXPECT_EQ(remote("GET", "/v1/me", token)->status, 200);
  clock.advance(hours(2));
  EXPECT_EQ(remote("GET", "/v1/me", token)->status, 401);
  const std::string next = token_of(1000);
  const std::string others = token_of(1001);
  ask("POST", "/v1/token/revoke", "", 1000);
  settle();
  EXPECT_EQ(remote("GET", "/v1/me", next)->status, 401);
  EXPECT_EQ(remote("GET", "/v1/me", others)->status, 200);
  std::string wrong = others;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  for (const std::string& text :
       {wrong, std::string("0"), std::string(64, '0'), std::string(6'400, 'f')}) {
    EXPECT_EQ(remote("GET", "/v1/me", text)->status, 401);
  }
  EXPECT_EQ(ask("POST", "/v1/token", R"({"for_s":0})")->status, 400);
  EXPECT_EQ(ask("POST", "/v1/token", R"({"for_s":9223372036854775807})")->status, 400);
  EXPECT_EQ(ask("POST", "/v1/token", "nonsense")->status, 400);
}

TEST_F(WebTest, WhoCallsUsByAStrangersNameIsSentAway) {
  const std::string token = token_of(1000);
  for (const char* path : {"/", "/v1/jobs", "/metrics", "/page.js"}) {
    EXPECT_EQ(remote("GET", path, token, "evil.example")->status, 403) << path;
  }
}

TEST_F(WebTest, TricksWithPathsFindNothing) {
  for (const char* path :
       {"//", "/../etc/passwd", "/page.js/..", "/%2e%2e/state.db", "/metrics/", "/metrics/x", "/v1",
        "/v1/", "/v1//log", "/v1/jobs//log", "/v1/jobs/../log", "/v1/jobs/1/log/2", "/events/"}) {
    const auto answer = remote("GET", path);
    EXPECT_GE(answer->status, 400) << path << answer->body;
    EXPECT_LT(answer->status, 500) << path;
  }
  EXPECT_EQ(remote("DELETE", "/v1/jobs/1", token_of(1000))->status, 403);
}

TEST_F(WebTest, TheFiguresAreWhatHappened) {
  EXPECT_THAT(remote("GET", "/metrics")->body, HasSubstr("\naliquot_jobs_submitted_total 1\n"));
  EXPECT_THAT(remote("GET", "/metrics")->body,
              HasSubstr("\naliquot_jobs{state=\"RUNNING\",partition=\"main\"} 1\n"));
  api::JobSpec bad = spec("gpu:1");
  bad.partition = "nowhere";
  ask("POST", "/v1/jobs", api::to_json(bad));
  settle();
  EXPECT_THAT(
      remote("GET", "/metrics")->body,
      HasSubstr("aliquot_scheduler_refusals_total{reason=\"ESLURM_INVALID_PARTITION_NAME\"} 1\n"));
  clock.advance(hours(1));
  EXPECT_THAT(remote("GET", "/metrics")->body,
              HasSubstr("aliquot_gpu_seconds_total{user=\"u1000\"} 3600\n"));
  EXPECT_THAT(remote("GET", "/metrics/jobs")->body, HasSubstr("\nslurm_jobs_gpus_alloc 1\n"));
}

}  // namespace
}  // namespace aliquot::engine
