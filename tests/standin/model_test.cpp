#include "standin/model/gpu_model.hpp"

#include <gtest/gtest.h>

#include <set>

namespace aliquot::standin {
namespace {

TEST(Machine, IsAListOfModelsWithCounts) {
  std::string why;
  const auto gpus = parse_machine("h200:2,p100,titanrtx:1", &why);
  ASSERT_TRUE(gpus) << why;
  ASSERT_EQ(gpus->size(), 4U);
  EXPECT_EQ((*gpus)[1]->key, "h200");
  EXPECT_EQ((*gpus)[2]->key, "p100");
  EXPECT_EQ((*gpus)[3]->key, "titanrtx");
}

TEST(Machine, MayHaveNoGpuAtAll) {
  std::string why;
  EXPECT_EQ(parse_machine("h200:0", &why)->size(), 0U);
}

TEST(Machine, MistakesAreNamed) {
  std::string why;
  EXPECT_FALSE(parse_machine("h300:1", &why));
  EXPECT_NE(why.find("h300"), std::string::npos);
  EXPECT_FALSE(parse_machine("h200:x", &why));
  EXPECT_FALSE(parse_machine("h200:", &why));
  EXPECT_FALSE(parse_machine("h200:10,p100:10", &why));
}

TEST(Model, EveryNameSaysSimulated) {
  for (const char* key : {"h200", "h100", "a100", "titanrtx", "p100", "t4", "v100"}) {
    const GpuModel* model = find_model(key);
    ASSERT_NE(model, nullptr) << key;
    EXPECT_NE(model->name.find("(simulated)"), std::string_view::npos) << key;
    EXPECT_EQ(model->volta_mps(), model->key != "p100");
  }
}

TEST(Uuid, IsStableAndDiffersByPlaceAndModel) {
  std::set<std::string> seen;
  for (const char* key : {"h200", "p100"})
    for (unsigned i = 0; i < 16; ++i) seen.insert(uuid_text(uuid_bytes(*find_model(key), i)));
  EXPECT_EQ(seen.size(), 32U);
  EXPECT_EQ(uuid_text(uuid_bytes(*find_model("h200"), 0)),
            uuid_text(uuid_bytes(*find_model("h200"), 0)));
  EXPECT_EQ(seen.begin()->size(), 40U);
}

}  // namespace
}  // namespace aliquot::standin
