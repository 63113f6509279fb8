// aliquot-page, which `aliquot page` runs: the live page of a cluster, where no daemon of ours
// could serve it. A program of its own, since the commands are to start without loading OpenSSL: on
// the host of Slurm's balancer, or of the Kubernetes scheduler. It asks what `aliquot status` asks,
// from time to time, and is to be read alone.
#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <thread>

#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/machine/page_options.hpp"
#include "cli/query.hpp"
#include "cli/view/engine_query.hpp"
#include "net/server.hpp"
#include "show/door.hpp"
#include "show/live_page.hpp"

namespace aliquot::cli {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

class ClusterPage {
 public:
  explicit ClusterPage(const PageOptions& options)
      : options_(options),
        signals_(context_, SIGINT, SIGTERM),
        pause_(context_),
        beating_(context_),
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
    beat();
    (void)print(fmt::format("{}\n", show::address_of(options_.listen)));
    context_.run();
    if (looking_.joinable()) looking_.join();
    return refused_;
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

  void beat() {
    page_.beat();
    beating_.expires_after(std::chrono::seconds(15));
    beating_.async_wait([this](error_code error) {
      if (!error) beat();
    });
  }

  void looked(Reply<api::Overview> overview) {
    // What a daemon shows its caller is not for whoever comes to this page.
    if (overview && overview->cluster.engine.empty()) {
      refused_ =
          fail(Error::Code::invalid_argument,
               "this machine has a daemon of its own, which serves its page itself: page.port "
               "in its settings");
      return context_.stop();
    }
    if (overview) return page_.look(wall_now(), std::move(*overview));
    const std::string& trouble = overview.error().message;
    if (page_.look_in_vain(trouble)) complain(trouble.empty() ? "nobody answers" : trouble);
  }

  const PageOptions& options_;
  asio::io_context context_{1};
  asio::signal_set signals_;
  asio::steady_timer pause_;
  asio::steady_timer beating_;
  std::thread looking_;
  show::LivePage page_;
  Result<void> refused_ = {};
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
}  // namespace aliquot::cli

int main(int argc, char** argv) {
  using namespace aliquot::cli;
  CLI::App app{"Serves the live page of a Slurm or Kubernetes cluster; run by 'aliquot page'"};
  PageOptions options;
  add_page_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return serve_page(options);
}
