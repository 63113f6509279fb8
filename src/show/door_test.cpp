#include "show/door.hpp"

#include <gtest/gtest.h>

namespace aliquot::show {
namespace {

net::Request calling(const std::string& host) {
  net::Request request;
  request.headers.emplace("host", host);
  return request;
}

TEST(DoorTest, BeyondThisMachineThereIsTls) {
  EXPECT_TRUE(check_listen({.host = "0.0.0.0"})) << "it listens nowhere";
  for (const char* host : {"127.0.0.1", "127.8.0.1", "localhost", "::1"}) {
    EXPECT_TRUE(check_listen({.host = host, .port = 9834})) << host;
  }
  for (const char* host :
       {"", "0.0.0.0", "::", "10.0.0.7", "gpu1.example.org", "127.0.0.1.evil.org"}) {
    EXPECT_FALSE(check_listen({.host = host, .port = 9834})) << host;
    EXPECT_TRUE(check_listen({.host = host, .port = 9834, .certificate = "c", .key = "k"})) << host;
  }
  EXPECT_FALSE(check_listen({.port = 9834, .certificate = "c"}));
}

TEST(DoorTest, OnlyNamesOfOursAreAnswered) {
  const Listen listen{.host = "127.0.0.1", .port = 9834, .names = {"gpu1.example.org"}};
  for (const char* host : {"127.0.0.1:9834", "localhost:9834", "LOCALHOST", "[::1]:9834",
                           "10.0.0.7:9834", "gpu1.example.org:9834", "GPU1.example.org"}) {
    EXPECT_TRUE(calls_us(calling(host), listen)) << host;
  }
  for (const char* host : {"evil.org", "evil.org:9834", "", ":9834", "127.0.0.1.evil.org", "[evil",
                           "[::1].evil.org", "[localhost]evil.org:80", "localhost:evil.org"}) {
    EXPECT_FALSE(calls_us(calling(host), listen)) << host;
  }
  EXPECT_FALSE(calls_us(calling(std::string("127.0.0.1\0.evil.org", 19)), listen));
  EXPECT_FALSE(calls_us({}, listen));
}

TEST(DoorTest, TheTokenIsTheBearers) {
  const auto token = [](const std::string& header) {
    net::Request request;
    request.headers.emplace("authorization", header);
    return std::string(token_of(request));
  };
  EXPECT_EQ(token("Bearer abc"), "abc");
  EXPECT_EQ(token("bearer abc"), "abc");
  EXPECT_EQ(token("Basic abc"), "");
  EXPECT_EQ(token("Bearer "), "");
  EXPECT_EQ(token_of({}), "");
}

TEST(DoorTest, SaysWhereThePageIs) {
  EXPECT_EQ(address_of({.port = 0}), "");
  EXPECT_EQ(address_of({.port = 9834}), "http://127.0.0.1:9834/");
  EXPECT_EQ(address_of({.host = "::1", .port = 1}), "http://[::1]:1/");
  EXPECT_EQ(
      address_of({.host = "0.0.0.0", .port = 1, .certificate = "c", .key = "k", .names = {"gpu1"}}),
      "https://gpu1:1/");
}

}  // namespace
}  // namespace aliquot::show
