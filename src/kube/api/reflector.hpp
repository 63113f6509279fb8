// The picture of a collection (all pods, all nodes), kept up to date: a list in pages, then a watch
// from there on, again whenever it ends, and a new list when the API server no longer knows where
// we were (410) or an event could not be read. What happened in between is found by comparing:
// whoever listens hears of every object that came, changed or went, whatever broke on the way.
//
// It keeps of each object only its name, uid and resourceVersion. An object that was deleted and
// made again under its name is heard of as deleted and added.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/time.hpp"
#include "kube/api/api.hpp"

namespace boost::asio {
class io_context;
}

namespace aliquot::kube {

enum class EventType { added, modified, deleted };

struct ReflectorOptions {
  std::string target = {};  // `/api/v1/pods`, perhaps with a query that selects
  std::size_t page = 500;
  Millis watch_for = minutes(8);     // what we ask the server to keep a watch open for
  Millis first_pause = Millis(200);  // after a failure; doubled after each further one
  Millis longest_pause = seconds(30);
};

class Reflector {
 public:
  // Of what was found gone by a list, the object is its metadata alone: name, namespace, uid.
  using OnEvent = std::function<void(EventType, const boost::json::object&)>;
  // Once: everything that is there has been told.
  using OnSynced = std::function<void()>;

  // `api` outlives it. Nothing is called before start(), nor once it is destroyed; it may be
  // destroyed from within what it calls.
  Reflector(boost::asio::io_context& context, Api& api, ReflectorOptions options, OnEvent on_event,
            OnSynced on_synced = {});
  Reflector(const Reflector&) = delete;
  Reflector& operator=(const Reflector&) = delete;
  ~Reflector();

  void start();

  [[nodiscard]] bool synced() const;    // since the first list
  [[nodiscard]] bool watching() const;  // a watch is open: the picture is as new as it can be
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] const std::string& trouble() const;  // why not watching; empty: all is well

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace aliquot::kube
