// An API server in memory, for tests: objects of any kind by their path, with uid and
// resourceVersion, create, replace, merge-patch and delete with preconditions, the binding
// subresource, lists in pages with selectors, and watches. It checks what the real one checks of
// names, versions and preconditions, and nothing of what is in a spec. It answers through the loop,
// as the real one does, and fails, is slow or cuts connections when a test says so.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kube/api/api.hpp"

namespace boost::asio {
class io_context;
}

namespace aliquot::kube {

class FakeApi final : public Api {
 public:
  // What happens to a request instead of what it asks for.
  enum class Fault {
    status,       // it is answered with this status and not carried out
    cut,          // the connection breaks before it is carried out
    lost_answer,  // it is carried out, and then the connection breaks
    slow,         // it is carried out, and answered when release() is called
    late,         // it is neither carried out nor answered before release() is called
    garbage,      // it is carried out, and the answer is no JSON
  };
  struct FaultPlan {
    Fault fault = Fault::status;
    int status = 500;
    int times = 1;
    // Of these requests; empty: any. `path` is part of the path; a watch's method is WATCH.
    std::string method = {};
    std::string path = {};
  };

  explicit FakeApi(boost::asio::io_context& context);
  ~FakeApi() override;

  void send(ApiRequest request, Done done) override;
  [[nodiscard]] std::unique_ptr<Watch> watch(std::string target, OnLine on_line,
                                             OnEnd on_end) override;

  // What a test does past the API, at once. `path` is an object's, as of object_path().
  // Made or replaced as it is; uid and resourceVersion are given to it. Returns it as it is then.
  boost::json::object put(std::string_view path, boost::json::object object);
  // Merge-patched; false: there is none.
  bool patch(std::string_view path, const boost::json::object& patch);
  bool remove(std::string_view path);
  [[nodiscard]] const boost::json::object* find(std::string_view path) const;
  // Of a collection (`/api/v1/pods`: of all namespaces), by path.
  [[nodiscard]] std::map<std::string, boost::json::object> list(std::string_view collection) const;

  void plan(FaultPlan fault);
  void clear_plans();
  // Answers what is slow or late.
  void release();
  // Every open watch breaks.
  void cut_watches();
  // Every open watch ends as if its time had run out.
  void end_watches();
  // Forgets what happened before now: watches and pages from before are answered with 410.
  void compact();
  // Sends a bookmark to every open watch that asked for them.
  void bookmark();
  // Sends this line to every open watch, whatever it is.
  void say(std::string_view line);

  struct Seen {
    std::string method;  // WATCH for a watch
    std::string target;
    std::string body;
    std::string content_type;
  };
  [[nodiscard]] const std::vector<Seen>& seen() const;
  void forget_seen();
  [[nodiscard]] std::size_t watches() const;
  [[nodiscard]] std::size_t waiting() const;  // slow or late ones
  [[nodiscard]] std::int64_t resource_version() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace aliquot::kube
