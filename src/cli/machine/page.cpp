// `aliquot page`: the live page of a cluster, where no daemon of ours could serve it: on the host
// of Slurm's balancer, or of the Kubernetes scheduler. It asks what `aliquot status` asks, from
// time to time, and is to be read alone.
#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <thread>

#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/own_command.hpp"
#include "cli/query.hpp"
#include "cli/view/engine_query.hpp"
#include "net/server.hpp"
#include "show/door.hpp"
#include "show/live_page.hpp"

namespace aliquot::cli {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

struct PageOptions {
  show::Listen listen{.port = 9834};
  double every = 2;
  KubeOptions kube;
};

class ClusterPage {
 public:
  explicit ClusterPage(const PageOptions& options)
      : options_(options),
        signals_(context_, SIGINT, SIGTERM),
        pause_(context_),
        page_(options.listen) {}

  Result<void> serve() {
    net::ServerOptions server =
        show::server_at(options_.listen, [](const Error& error) { complain(error.message); });
    server.body_limit = 4096;
    const auto listening = TRY(net::Server::listen(
        context_, std::move(server), [this](const net::Request& request, const net::Responder& to) {
          if (page_.admit(request, to) && !page_.handle(request, to)) {
            to({404, "there is nothing under this path\n", "text/plain"});
          }
        }));
    signals_.async_wait([this](error_code, int) { context_.stop(); });
    look();
    (void)print(fmt::format("{}\n", show::address_of(options_.listen)));
    context_.run();
    if (looking_.joinable()) looking_.join();
    return {};
  }

 private:
  // One question at a time, on a thread of its own: the cluster may take long to answer.
  void look() {
    if (looking_.joinable()) looking_.join();
    looking_ = std::thread([this] {
      auto overview = ask_overview(false, options_.kube);
      asio::post(context_, [this, overview = std::move(overview)]() mutable {
        looked(std::move(overview));
        pause_.expires_after(std::chrono::milliseconds(static_cast<int>(options_.every * 1000)));
        pause_.async_wait([this](error_code error) {
          if (!error) look();
        });
      });
    });
  }

  void looked(Reply<api::Overview> overview) {
    if (overview) return page_.look(wall_now(), std::move(*overview));
    const std::string& trouble = overview.error().message;
    if (page_.look_in_vain(trouble)) complain(trouble.empty() ? "nobody answers" : trouble);
  }

  const PageOptions& options_;
  asio::io_context context_{1};
  asio::signal_set signals_;
  asio::steady_timer pause_;
  std::thread looking_;
  show::LivePage page_;
};

int serve_page(const PageOptions& options) {
  if (const auto fine = show::check_listen(options.listen); !fine) {
    complain(fine.error().message);
    return kMisused;
  }
  const auto served = ClusterPage(options).serve();
  return served ? kDone : failed(served.error());
}

}  // namespace

void add_page(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, serve_page);
  command
      .add_option("--host", options.listen.host, "Listen there; beyond this machine with TLS alone")
      ->capture_default_str();
  command.add_option("--port", options.listen.port, "The port")
      ->check(CLI::Range(1, 65'535))
      ->capture_default_str();
  command.add_option("--certificate", options.listen.certificate, "For TLS: a file in PEM");
  command.add_option("--key", options.listen.key, "Its key");
  command.add_option("--name", options.listen.names,
                     "Another name by which browsers call this host");
  command.add_option("--every", options.every, "Seconds between two looks at the cluster")
      ->check(CLI::Range(0.5, 3600.0))
      ->capture_default_str();
  add_kube_options(command, options.kube, true);
}

}  // namespace aliquot::cli
