#include "net/headers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/http.hpp"

namespace aliquot::net {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(HeadersTest, KeepsWhatCounts) {
  const auto kept = keep_headers({{"HOST", "gpu1:9834"},
                                  {"X-Forwarded-For", "1.2.3.4"},
                                  {"Accept-Encoding", "gzip"},
                                  {"accept-encoding", "br"},
                                  {"Authorization", "Bearer 7"}},
                                 true);
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_THAT(*kept, ElementsAre(Pair("accept-encoding", "gzip"), Pair("authorization", "Bearer 7"),
                                 Pair("host", "gpu1:9834")));
}

TEST(HeadersTest, RefusesTwoAnswersToOneQuestion) {
  const auto message = [](const std::vector<HeaderLine>& lines, bool wants_host = true) {
    const auto kept = keep_headers(lines, wants_host);
    return kept ? "" : kept.error().message;
  };
  EXPECT_EQ(message({{"Host", "a"}, {"host", "a"}}), "the request has two headers host");
  EXPECT_EQ(message({{"Host", "a"}, {"host", "b"}}, false), "the request has two headers host");
  EXPECT_EQ(message({{"Host", "a"}, {"Authorization", "Bearer 1"}, {"authorization", "Bearer 2"}}),
            "the request has two headers authorization");
  EXPECT_EQ(message({}), "the request has no header host");
  EXPECT_EQ(message({{"Hostess", "a"}}), "the request has no header host");
  EXPECT_EQ(message({}, false), "") << "HTTP/1.0";
  EXPECT_EQ(message({{"Host", ""}}), "");
}

}  // namespace
}  // namespace aliquot::net
