// Has the API server's ResourceSlices of this node be what we want them to be: written when that
// changes, and again when somebody else changed or deleted them, as a kubelet does that starts.
//
// All slices of the node are one pool of one generation: the scheduler uses the newest one that is
// complete. Where a single slice changes it is written in its place, so that the pool is complete
// at any time; else all of them are of a new generation.
//
// On the loop.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "kube/api/api.hpp"
#include "kube/api/reflector.hpp"

namespace aliquot::kube {

class SlicePublisher {
 public:
  // `context`, `api` and `clock` outlive it.
  SlicePublisher(boost::asio::io_context& context, Api& api, const Clock& clock, std::string domain,
                 std::string node);

  void start();
  // Specs without pool, as slice_specs() makes them; they go when the node with this uid goes.
  void want(std::vector<boost::json::object> specs, const std::string& node_uid);
  // Often: tries again what failed.
  void step();

  // What is in the way; empty: all is written.
  [[nodiscard]] std::string trouble() const;

 private:
  struct Written {
    std::string text;
    std::string version;
  };
  void hear(EventType type, const boost::json::object& object);
  [[nodiscard]] std::string name_of(std::size_t at) const;
  [[nodiscard]] boost::json::object body_of(std::size_t at) const;
  void write(std::size_t at, boost::json::object body);
  void wrote(const std::string& name, const std::string& text, bool shared,
             const Result<boost::json::object>& answer);

  Api& api_;
  const Clock& clock_;
  const std::string domain_;
  const std::string node_;
  std::string node_uid_;
  std::vector<boost::json::object> wanted_;
  std::int64_t generation_ = 0;                 // of the pool
  std::map<std::string, std::string> present_;  // as last heard: resourceVersion by name
  std::map<std::string, Written> written_;
  bool writing_ = false;
  bool complete_ = false;
  MonoTime again_ = {};
  std::string trouble_;
  std::shared_ptr<int> token_ = std::make_shared<int>(0);
  Reflector slices_;
};

}  // namespace aliquot::kube
