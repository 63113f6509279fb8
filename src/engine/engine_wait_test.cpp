// Who waits for whom: clients for the end of a job, and jobs for each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "engine/engine_fixture.hpp"

namespace aliquot::engine {
namespace {

class EngineWaitTest : public testing::Test, public EngineFixture {
 protected:
  const Caller user{Uid(1000)};

  std::int64_t submit_held(const std::string& array = "", const std::string& dependency = "") {
    auto held = spec();
    held.hold = true;
    held.array = array;
    held.dependency = dependency;
    return submit(held);
  }
  // What the update is answered: an error's name, or nothing.
  std::string depend(const std::string& id, const std::string& on) {
    const auto answer = update(user, id, fmt::format(R"({{"dependency":"{}"}})", on));
    settle();
    return answer ? "" : code_of(answer.error());
  }
};

TEST_F(EngineWaitTest, WhoWaitsForAnElementHearsOfItsEnd) {
  auto array = spec("gpu:2");
  array.array = "1-4%2";
  const auto id = std::to_string(submit(array));
  std::optional<std::string> first;
  std::optional<std::string> third;
  std::optional<std::string> all;
  const auto hear = [](std::optional<std::string>& where) {
    return [&where](const Answer<api::JobInfo>& last) {
      where = fmt::format("{}", last->array_task_id.value_or(-1));
    };
  };
  EXPECT_TRUE(engine->views().wait(user, id + "_1", hear(first)));
  EXPECT_TRUE(engine->views().wait(user, id + "_3", hear(third)));  // it has not started yet
  EXPECT_TRUE(engine->views().wait(user, id, hear(all)));
  auto next = spec();
  next.dependency = "afterok:" + id + "_1";
  const auto after = submit(next);
  end(job(id + "_1").id);
  EXPECT_EQ(first, "1");
  EXPECT_EQ(state(after), "RUNNING") << "the others of the array are none of its business";
  EXPECT_FALSE(third || all);
  end(job(id + "_3").id);
  EXPECT_EQ(third, "3");
  end(job(id + "_2").id);
  EXPECT_FALSE(all);
  end(job(id + "_4").id);
  EXPECT_EQ(all, "4");
  std::optional<std::string> late;
  EXPECT_FALSE(engine->views().wait(user, id + "_1", hear(late))) << "it is answered at once";
  EXPECT_EQ(late, "1");
}

TEST_F(EngineWaitTest, OfAnElementThatIsCancelledWithItsArray) {
  const auto id = std::to_string(submit_held("1-3"));
  int heard = 0;
  const auto hear = [&](const Answer<api::JobInfo>&) { ++heard; };
  ASSERT_TRUE(engine->views().wait(user, id + "_2", hear));
  ASSERT_TRUE(engine->views().wait(user, id, hear));
  ASSERT_TRUE(engine->runs().cancel(user, id, {}));
  settle();
  EXPECT_EQ(heard, 2);
}

// Its answer holds its connection, which counts among its user's.
TEST_F(EngineWaitTest, WhoHasHungUpIsForgotten) {
  const auto id = std::to_string(submit(spec()));
  auto connection = std::make_shared<int>(0);
  const std::weak_ptr<int> kept = connection;
  const auto waiter =
      engine->views().wait(user, id, [held = std::move(connection)](const auto&) { ++*held; });
  ASSERT_TRUE(waiter);
  EXPECT_FALSE(kept.expired());
  engine->views().stop_waiting(*waiter);
  EXPECT_TRUE(kept.expired());
  engine->views().stop_waiting(*waiter);
  end(1);
}

TEST_F(EngineWaitTest, NoCircle) {
  const auto a = std::to_string(submit_held());
  const auto b = std::to_string(submit_held("", "afterok:" + a));
  const auto c = std::to_string(submit_held("", "after:" + b));
  EXPECT_EQ(depend(a, "afterany:" + c), "ESLURM_CIRCULAR_DEPENDENCY");
  EXPECT_EQ(depend(a, "afterany:" + b), "ESLURM_CIRCULAR_DEPENDENCY");
  EXPECT_EQ(depend(a, "singleton"), "");
  EXPECT_EQ(depend(c, "afterok:" + a), "");
  EXPECT_EQ(depend(b, "afterok:" + c), "") << "c waits for a alone now";
  EXPECT_EQ(depend(a, "afterok:" + b), "ESLURM_CIRCULAR_DEPENDENCY");
  // What runs waits for nobody.
  const auto runs = std::to_string(submit(spec()));
  const auto d = std::to_string(submit_held("", "afterany:" + runs));
  EXPECT_EQ(depend(a, "afterok:" + d), "");
}

TEST_F(EngineWaitTest, NoCircleThroughAnArray) {
  const auto array = std::to_string(submit_held("1-3"));
  const auto second = std::to_string(submit_held("", "afterok:" + array + "_2"));
  const auto all = std::to_string(submit_held("", "afterok:" + array));
  EXPECT_EQ(depend(array + "_1", "afterok:" + second), "") << "the second is another";
  EXPECT_EQ(depend(array + "_2", "afterok:" + second), "ESLURM_CIRCULAR_DEPENDENCY");
  EXPECT_EQ(depend(array + "_3", "afterok:" + all), "ESLURM_CIRCULAR_DEPENDENCY");
}

}  // namespace
}  // namespace aliquot::engine
