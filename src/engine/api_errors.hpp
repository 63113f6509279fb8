// The engine's refusals as the API says them: an HTTP status, and the name of Slurm's error, whose
// text the commands print.
#pragma once

#include <string>

#include "api/types.hpp"
#include "engine/refused.hpp"
#include "engine/state.hpp"
#include "net/http.hpp"

namespace aliquot::engine {

struct ApiError {
  int status = 400;
  api::ErrorInfo info;
};
ApiError to_api(const Refused& refused);
net::Response error_response(const Refused& refused);
// Of a request that is none of the API's.
net::Response misuse(int status, const std::string& message);

inline Caller caller_of(const net::Request& request) {
  return {Uid(request.peer.uid), Pid(request.peer.pid)};
}

}  // namespace aliquot::engine
