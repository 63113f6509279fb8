#include "slurm/agent/node_web.hpp"

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "base/exposition.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::slurm {

namespace asio = boost::asio;

Result<void> NodeWeb::listen() {
  const show::Listen& listen = page_.listen();
  if (listen.port == 0) return {};
  net::ServerOptions options = show::server_at(listen, [](const Error& error) {
    spdlog::error("the page's certificate: {}", error.message);
  });
  options.body_limit = 4096;
  options.connections = 512;
  options.connections_per_user = 256;
  server_ = TRY(net::Server::listen(context_, std::move(options),
                                    [this](const net::Request& request, const net::Responder& to) {
                                      handle_remote(request, to);
                                    }));
  spdlog::info("the page is at {}", show::address_of(listen));
  refresh();
  return {};
}

bool NodeWeb::handle(const net::Request& request, const net::Responder& respond) {
  if (request.method != "GET" || request.path != "/metrics") return false;
  waiting_.push_back(respond);
  if (waiting_.size() > 1) return true;
  worker_.post([this] {
    asio::post(context_, [this, text = look_.metrics(detail_)] {
      for (const net::Responder& one : std::exchange(waiting_, {})) {
        one({200, text, std::string(Exposition::kContentType)});
      }
    });
  });
  return true;
}

void NodeWeb::handle_remote(const net::Request& request, const net::Responder& respond) {
  if (!page_.admit(request, respond) || handle(request, respond)) return;
  if (page_.handle(request, respond)) return;
  respond({404, "there is nothing under this path\n", "text/plain"});
}

void NodeWeb::refresh() {
  worker_.post([this] {
    asio::post(context_, [this, all = look_.overview()]() mutable {
      page_.look(sys::SystemClock().wall(), std::move(all));
      constexpr int kBeat = 15;
      if (++looks_ % kBeat == 0) page_.beat();
      pause_.expires_after(std::chrono::seconds(1));
      pause_.async_wait([this](boost::system::error_code error) {
        if (!error) refresh();
      });
    });
  });
}

}  // namespace aliquot::slurm
