// What we tell people of a pod or a node: Events, as `kubectl describe` shows them. The same event
// of the same object again is counted in the one that is there, and not more often than the API
// server can bear. Telling is best effort: what cannot be delivered is dropped, and nothing waits
// for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/time.hpp"
#include "kube/api/api.hpp"

namespace boost::asio {
class io_context;
}

namespace aliquot::kube {

struct ObjectRef {
  std::string kind = "Pod";
  std::string name_space = {};  // empty: of no namespace, like a node
  std::string name = {};
  std::string uid = {};
  std::string api_version = "v1";

  friend auto operator<=>(const ObjectRef&, const ObjectRef&) = default;
};

enum class Severity { normal, warning };

struct EventsOptions {
  std::string component = "aliquot";
  std::string host = {};           // the node it comes from, where it comes from one
  Millis quiet = seconds(30);      // between two updates of the same event
  std::size_t remembered = 4'096;  // different events; the oldest are forgotten
  std::size_t in_flight = 32;      // requests at once; what is more is dropped, or counted later
};

class Events {
 public:
  // `api` and `clock` outlive it.
  Events(boost::asio::io_context& context, Api& api, const Clock& clock,
         EventsOptions options = {});
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events();

  // `reason` is one word for programs (GpuAssigned), `message` a sentence for people.
  void tell(const ObjectRef& about, Severity severity, std::string reason, std::string message);

  // Sends the counts that were kept back and are due. A timer does so; tests do it by hand.
  void flush();

  [[nodiscard]] std::uint64_t dropped() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace aliquot::kube
