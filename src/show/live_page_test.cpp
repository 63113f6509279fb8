#include "show/live_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aliquot::show {
namespace {

class Asker final : public net::Exchange {
 public:
  void answer(net::Response response) override { answered = std::move(response); }
  void stream(net::Response head) override { answered = std::move(head); }
  bool push(std::shared_ptr<const std::string> part) override {
    heard += *part;
    return true;
  }
  void on_close(std::function<void()>) override {}
  net::Response answered = {0, ""};
  std::string heard;
};

std::shared_ptr<Asker> ask(LivePage& page, const std::string& path) {
  auto asker = std::make_shared<Asker>();
  const net::Responder respond(asker);
  const net::Request request{.method = "GET",
                             .path = path,
                             .query = {},
                             .body = {},
                             .headers = {{"host", "localhost:9834"}}};
  if (page.admit(request, respond) && !page.handle(request, respond)) respond({404, "none"});
  return asker;
}

api::JobInfo over(std::int64_t id, std::int64_t end_ms) {
  api::JobInfo job;
  job.id = id;
  job.state = "COMPLETED";
  job.end_ms = end_ms;
  return job;
}

TEST(LivePageTest, SaysWhyThereIsNothingToSee) {
  LivePage page({.port = 9834});
  EXPECT_EQ(ask(page, "/events")->answered.status, 503);
  EXPECT_TRUE(page.look_in_vain("slurmctld does not answer"));
  EXPECT_FALSE(page.look_in_vain("slurmctld does not answer")) << "it is no news";
  EXPECT_EQ(ask(page, "/events")->answered.body, "slurmctld does not answer\n");
  page.look(WallTime(1), {});
  EXPECT_EQ(ask(page, "/events")->answered.status, 200);
}

// What was seen last is still shown, and not taken for what is.
TEST(LivePageTest, WhatIsOldIsCalledSo) {
  LivePage page({.port = 9834});
  page.look(WallTime(1'000), {});
  const auto watching = ask(page, "/events");
  EXPECT_TRUE(page.look_in_vain("slurmctld is \"away\""));
  const std::string old = R"("trouble":{"why":"slurmctld is \"away\"","seen_ms":1000})";
  EXPECT_THAT(watching->heard, testing::HasSubstr(old));
  EXPECT_THAT(ask(page, "/events")->heard, testing::HasSubstr(old));
  page.look(WallTime(2'000), {});
  EXPECT_THAT(watching->heard, testing::HasSubstr(R"("gone":["trouble"])"));
  EXPECT_THAT(ask(page, "/events")->heard, testing::Not(testing::HasSubstr("trouble")));
}

TEST(LivePageTest, WhoeverLooksIsNobodyAndNeedsNoToken) {
  LivePage page({.port = 9834});
  const auto me = ask(page, "/v1/me");
  EXPECT_EQ(me->answered.status, 200);
  EXPECT_THAT(me->answered.body, testing::HasSubstr(R"("user":"")"));
  EXPECT_EQ(ask(page, "/v1/jobs")->answered.status, 404);
}

TEST(LivePageTest, WhatEndedLatelyIsShownTheLatestFirst) {
  LivePage page({.port = 9834});
  api::Overview all;
  all.cluster.engine = "slurm";
  for (std::int64_t id = 1; id <= 20; ++id) all.jobs.push_back(over(id, id * 1'000));
  page.look(WallTime(30'000), std::move(all));
  const std::string heard = ask(page, "/events")->heard;
  const auto list = heard.substr(heard.find("\"over\":"));
  EXPECT_LT(list.find("\"id\":20,"), list.find("\"id\":19,"));
  EXPECT_NE(list.find("\"id\":9,"), list.npos);
  EXPECT_EQ(list.find("\"id\":8,"), list.npos) << "twelve of them";
}

}  // namespace
}  // namespace aliquot::show
