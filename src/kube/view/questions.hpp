// Asks the API server for all that people want to see of a cluster, as whoever runs the command.
// What they may not see is a gap that is said, where the rest still makes sense.
//
// For a command that asks, prints and ends: it waits for the answers on its own loop.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <string>
#include <vector>

#include "kube/api/api.hpp"
#include "kube/view/cluster_look.hpp"
#include "kube/view/why.hpp"

namespace boost::asio {
class io_context;
}

namespace aliquot::kube {

struct Wanted {
  Names names = {};
  std::string name_space = "default";
  bool all_spaces = false;  // every pod is the caller's
  bool quota = false;       // also what the namespace may have
  bool figures = true;      // also what the agents have measured
};

class Questions {
 public:
  // Both outlive it. Nobody else runs the loop.
  Questions(boost::asio::io_context& context, Api& api) : context_(context), api_(api) {}

  Result<ClusterLook> look(const Wanted& wanted);
  Result<std::vector<SeenEvent>> events_of(const PodName& pod);

 private:
  // Where an agent can be asked.
  struct Agent {
    std::string node;
    std::string target;
  };
  using OnObject = std::function<void(const boost::json::object&)>;

  Result<boost::json::object> get(const std::string& target);
  // Of a collection, in pages.
  Result<void> list(const std::string& target, const OnObject& on_object);
  // All at once; by position.
  std::vector<Result<ApiResponse>> get_all(const std::vector<std::string>& targets);

  Result<void> see_nodes(ClusterLook& look);
  Result<void> see_pods(const Wanted& wanted, ClusterLook& look);
  Result<void> see_claims(const Wanted& wanted, ClusterLook& look);
  void see_quota(ClusterLook& look);
  void see_figures(ClusterLook& look);

  boost::asio::io_context& context_;
  Api& api_;
  bool pods_of_all_ = false;
  std::vector<Agent> agents_;
};

}  // namespace aliquot::kube
