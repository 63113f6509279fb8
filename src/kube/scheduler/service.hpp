// aliquot-kube-scheduler without its sockets: follows pods and nodes, stands for leader where it is
// told to, and answers kube-scheduler's requests and those about itself.
//
// Everybody who has seen all pods and nodes answers /filter and /prioritize. Only the leader binds,
// and only once it has listed the pods anew: what the leader before it wrote must be known.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "kube/api/api.hpp"
#include "kube/api/lease.hpp"
#include "kube/model/grant_annotation.hpp"
#include "kube/scheduler/cluster_state.hpp"
#include "net/http.hpp"

namespace boost::asio {
class io_context;
}

namespace aliquot::kube {

struct ServiceSettings {
  StateSettings state = {};
  std::optional<LeaseOptions> lease = {};  // nothing: we are alone, and lead
  bool webhook = false;                    // /admit makes claims of limits
};

class SchedulerService {
 public:
  using Answer = std::function<void(net::Response)>;

  // `context`, `api` and `clock` outlive it.
  static Result<std::unique_ptr<SchedulerService>> create(boost::asio::io_context& context,
                                                          Api& api, const Clock& clock, SealKey key,
                                                          ServiceSettings settings);
  SchedulerService(const SchedulerService&) = delete;
  SchedulerService& operator=(const SchedulerService&) = delete;
  ~SchedulerService();

  void start();
  // Gives the lease back, then calls `done`.
  void stop(std::function<void()> done);

  // Answered once, perhaps at once.
  void handle(const net::Request& request, Answer answer);

  // Why nothing can be decided, or bound; empty: it can.
  [[nodiscard]] std::string not_ready() const;
  [[nodiscard]] std::string not_leading() const;
  [[nodiscard]] ClusterState& state();

 private:
  struct Parts;
  explicit SchedulerService(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace aliquot::kube
