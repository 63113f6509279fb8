// What a client hears when the record fails while it asks for something that is not on record.
#include <gtest/gtest.h>

#include "engine/api_server.hpp"
#include "engine/faulty_disk.hpp"
#include "engine/test_bench.hpp"

namespace aliquot::engine {
namespace {

class Connection final : public net::Exchange {
 public:
  void answer(net::Response response) override { status = response.status; }
  void on_close(std::function<void()> hook) override { hooks.push_back(std::move(hook)); }
  void close() {
    for (const auto& hook : std::exchange(hooks, {})) hook();
  }
  int status = 0;
  std::vector<std::function<void()>> hooks;
};

class ApiServerTest : public testing::Test, public FaultyDisk, public Bench {
 protected:
  std::shared_ptr<Connection> ask(ApiServer& api, const std::string& path,
                                  const std::string& body = "{}") {
    auto connection = std::make_shared<Connection>();
    api.handle({"POST", path, {}, body, {1000, 1000, 4'711}}, net::Responder(connection));
    return connection;
  }
};

TEST_F(ApiServerTest, WhoComesBackKeepsItsJobWhateverBecomesOfOthersRequests) {
  const auto batch = submit(spec());
  auto wanted = spec();
  wanted.batch = false;
  const auto asked = engine->allocate({Uid(1000)}, wanted, [](auto) {});
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
