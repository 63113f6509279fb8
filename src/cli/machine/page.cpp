// `aliquot page`: the live page of a cluster, where no daemon of ours could serve it: on the host
// of Slurm's balancer, or of the Kubernetes scheduler. It asks what `aliquot status` asks, from
// time to time, and is to be read alone.
#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <optional>
#include <thread>

#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/own_command.hpp"
#include "cli/query.hpp"
#include "cli/view/engine_query.hpp"
#include "net/server.hpp"
#include "show/door.hpp"
#include "show/feed.hpp"
#include "show/picture.hpp"

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
      : options_(options), signals_(context_, SIGINT, SIGTERM), pause_(context_) {}

  Result<void> serve() {
    net::ServerOptions server;
    server.body_limit = 4096;
    server.host = options_.listen.host;
    server.port = static_cast<std::uint16_t>(options_.listen.port);
    if (!options_.listen.certificate.empty()) {
      server.tls =
          net::ServerTls{.certificate = options_.listen.certificate,
                         .key = options_.listen.key,
                         .on_trouble = [](const Error& error) { complain(error.message); }};
    }
    const auto listening = TRY(net::Server::listen(
        context_, std::move(server),
        [this](const net::Request& request, const net::Responder& to) { handle(request, to); }));
    signals_.async_wait([this](error_code, int) { context_.stop(); });
    look();
    (void)print(fmt::format("{}\n", show::address_of(options_.listen)));
    context_.run();
    if (looking_.joinable()) looking_.join();
    return {};
  }

 private:
  void handle(const net::Request& request, const net::Responder& respond) {
    if (!show::calls_us(request, options_.listen)) {
      return respond({403, "this machine is not called so here: see --name\n", "text/plain"});
    }
    if (request.method != "GET") return respond({405, "GET only\n", "text/plain"});
    if (auto file = show::page_file(request)) return respond(std::move(*file));
    if (request.path == "/") {
      std::optional<show::Plain> plain;
      if (picture_) plain = show::plain_of(*picture_, wall_now());
      return respond(show::front_page(plain));
    }
    if (request.path == "/events" && picture_) return feed_.listen(respond);
    if (request.path == "/events") return respond({503, trouble_ + "\n", "text/plain"});
    respond({404, "there is nothing under this path\n", "text/plain"});
  }

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
    if (!overview) {
      const std::string now = overview.error().message;
      if (now != trouble_) complain(now.empty() ? "nobody answers" : now);
      trouble_ = now;
      return feed_.beat();
    }
    trouble_.clear();
    std::vector<api::JobInfo> holders;
    for (const api::JobInfo& job : overview->jobs) {
      if (!job.gpus.empty() && !show::waits(job)) holders.push_back(job);
    }
    history_.look(wall_now(), show::nodes_of(overview->cluster), holders);
    picture_ = show::make_picture(std::move(overview->cluster), std::move(overview->jobs));
    feed_.update(show::parts_of(*picture_, history_));
    constexpr int kBeat = 8;
    if (++looks_ % kBeat == 0) feed_.beat();
  }

  const PageOptions& options_;
  asio::io_context context_{1};
  asio::signal_set signals_;
  asio::steady_timer pause_;
  std::thread looking_;
  show::Feed feed_;
  show::History history_;
  std::optional<show::Picture> picture_;
  std::string trouble_ = "the cluster has not answered yet";
  int looks_ = 0;
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
