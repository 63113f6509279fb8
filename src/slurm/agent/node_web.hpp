// What a browser and Prometheus ask of the agent: /metrics, and where the settings say so the live
// page of this node, to be read alone. Belongs to the loop's thread; what is shown is put together
// by the agent's worker, once for all who ask in the meantime, so that nobody's step waits behind
// those who look.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <string>
#include <vector>

#include "net/server.hpp"
#include "node/worker.hpp"
#include "show/gpu_metrics.hpp"
#include "show/live_page.hpp"
#include "slurm/agent/node_look.hpp"

namespace aliquot::slurm {

class NodeWeb {
 public:
  NodeWeb(boost::asio::io_context& context, node::Worker& worker, const NodeLook& look,
          const show::Listen& listen, const show::Detail& detail)
      : context_(context),
        worker_(worker),
        look_(look),
        detail_(detail),
        page_(listen),
        pause_(context) {}

  // On TCP, where the settings have a port.
  Result<void> listen();
  // By the Unix socket. False: it is none of these.
  bool handle(const net::Request& request, const net::Responder& respond);

 private:
  void handle_remote(const net::Request& request, const net::Responder& respond);
  void refresh();

  boost::asio::io_context& context_;
  node::Worker& worker_;
  const NodeLook& look_;
  const show::Detail detail_;
  show::LivePage page_;
  boost::asio::steady_timer pause_;
  int looks_ = 0;
  std::optional<net::Server> server_;
  std::vector<net::Responder> waiting_;  // for the metrics
};

}  // namespace aliquot::slurm
