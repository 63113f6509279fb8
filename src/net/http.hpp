// HTTP messages as plain values, for the clients and the server.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aliquot::net {

// Nobody's: of a peer whose user the kernel cannot tell.
inline constexpr std::uint32_t kNoUser = UINT32_MAX;

// Who is at the other end. On a Unix socket the process, as the kernel says; it may have ended by
// now. On TCP uid and gid are kNoUser, and there is an address.
struct Peer {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int32_t pid = 0;
  std::string address = {};
  std::string name = {};  // its certificate's common name, where the server asks for one
};

struct Request {
  std::string method;
  std::string path;                          // decoded, without the query
  std::map<std::string, std::string> query;  // decoded
  std::string body;
  Peer peer = {};
  // Those of kHeadersKept that there are, by their names in lower case.
  std::map<std::string, std::string, std::less<>> headers = {};
};

// Of a request's headers these are handed on.
inline constexpr std::array<std::string_view, 5> kHeadersKept{"accept-encoding", "authorization",
                                                              "host", "if-none-match", "origin"};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};  // more of them
};

std::string percent_encode(std::string_view text);

}  // namespace aliquot::net
