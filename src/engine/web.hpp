// What a browser and Prometheus ask of the daemon: the page, its events, what a job has written,
// and /metrics; and what of the API is open on TCP: everything that may be seen by anybody, and
// with a token (engine/tokens.hpp) what that user may see, and a few orders to his own jobs. All
// else is asked of the Unix socket, where the kernel says who it is.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/api_server.hpp"
#include "engine/engine.hpp"
#include "engine/job_log.hpp"
#include "net/server.hpp"
#include "show/feed.hpp"

namespace aliquot::engine {

class Web {
 public:
  Web(Engine& engine, ApiServer& api, JobLog& logs) : engine_(engine), api_(api), logs_(logs) {}

  // By the Unix socket: whoever asks is who the kernel says.
  void handle(const net::Request& request, const net::Responder& respond);
  // By TCP.
  void handle_remote(net::Request request, const net::Responder& respond);

  // From time to time; nothing is done for nobody. False: nobody watches.
  bool refresh();
  void beat() { feed_.beat(); }
  // Called when somebody begins to watch where nobody did.
  void on_watched(std::function<void()> then) { watched_ = std::move(then); }

 private:
  void show(const net::Request& request, const net::Responder& respond);
  void listen(const net::Request& request, const net::Responder& respond);
  void tell_who(const Caller& caller, const net::Responder& respond);
  void log(const net::Request& request, const std::string& job, const net::Responder& respond);
  void make_token(const net::Request& request, const net::Responder& respond);
  [[nodiscard]] std::string metrics() const;

  Engine& engine_;
  ApiServer& api_;
  JobLog& logs_;
  show::Feed feed_;
  std::function<void()> watched_;
};

}  // namespace aliquot::engine
