// HTTP messages as plain values, for client.hpp and server.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace aliquot::net {

// Who is at the other end, from the kernel; pid may be gone by the time it is looked at.
struct Peer {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int32_t pid = 0;
};

struct Request {
  std::string method;
  std::string path;                          // decoded, without the query
  std::map<std::string, std::string> query;  // decoded
  std::string body;
  Peer peer = {};
};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
};

std::string percent_encode(std::string_view text);

}  // namespace aliquot::net
