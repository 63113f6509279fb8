// Which of several replicas is the one that acts: leader election over a coordination.k8s.io/v1
// Lease, as kubectl and the controllers do it. A lease counts as expired when it has not changed
// for its duration by our own clock: the holder's clock is not believed. The holder gives up by
// itself when it could not renew in time, before anybody else can have it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/time.hpp"
#include "kube/api/api.hpp"

namespace boost::asio {
class io_context;
}

namespace aliquot::kube {

struct LeaseOptions {
  std::string name_space = {};
  std::string name = {};
  std::string identity = {};         // ours, and nobody else's: the pod's name and uid
  Millis duration = seconds(15);     // how long others wait for a holder that is silent
  Millis renew_limit = seconds(10);  // how long a holder goes on without having renewed
  Millis retry = seconds(2);
};

class Lease {
 public:
  // `api` and `clock` outlive it. Nothing is called once it is destroyed.
  Lease(boost::asio::io_context& context, Api& api, const Clock& clock, LeaseOptions options,
        std::function<void()> on_lead, std::function<void()> on_lost);
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();

  void start();
  // Stands down and gives the lease back, so that another need not wait for it to expire. `done` is
  // called when the API server has answered, or could not be asked.
  void release(std::function<void()> done = {});

  // By the clock, now: also right between the moment that the time has run out and on_lost.
  [[nodiscard]] bool leading() const;
  [[nodiscard]] const std::string& holder() const;  // as last seen; empty: nobody

  // What start() does every `retry`; tests do it by hand.
  void step();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace aliquot::kube
