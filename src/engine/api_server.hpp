// The API of docs/engine.md: from a request to a call of the engine and back. Paths and JSON only;
// who may do what is the engine's to say.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "net/server.hpp"

namespace aliquot::engine {

class ApiServer {
 public:
  // `changed` is called after every call that may have changed something; `reload` reads the
  // settings anew.
  using Reload = std::function<Result<Reloaded>()>;
  ApiServer(Engine& engine, std::function<void()> changed, Reload reload = {})
      : engine_(engine), changed_(std::move(changed)), reload_(std::move(reload)) {}

  void handle(const net::Request& request, const net::Responder& respond);
  // Of a change that somebody else asked the engine for: answered once it is on record.
  void answer(const net::Responder& respond, const Answer<void>& done, std::string body);
  // From now on the end of a connection ends no job: it is the daemon that goes.
  void stop() { stopped_ = true; }

 private:
  void hang_up(JobId job);
  void serve(const net::Request& request, const std::vector<std::string>& path,
             const net::Responder& respond);
  void get(const net::Request& request, const std::vector<std::string>& path,
           const net::Responder& respond);
  void post(const net::Request& request, const std::vector<std::string>& path,
            const net::Responder& respond);
  void post_job(const net::Request& request, const std::vector<std::string>& path,
                const net::Responder& respond);
  void allocate(const net::Request& request, const net::Responder& respond);
  void post_reservation(const net::Request& request, const std::string& verb,
                        const net::Responder& respond);
  void reconfigure(const Caller& caller, const net::Responder& respond);
  void begin_step(const net::Request& request, const std::string& id,
                  const net::Responder& respond);
  // Answered once what it changed is on record.
  void answer_later(const net::Responder& respond, net::Response response);

  Engine& engine_;
  std::function<void()> changed_;
  Reload reload_;
  bool stopped_ = false;
};

}  // namespace aliquot::engine
