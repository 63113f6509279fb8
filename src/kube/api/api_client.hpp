// The real API server, over HTTPS with connections that are kept. The token is read again when its
// file changes, and once more when the server does not take it (401). Answers of 429 and 503 that
// say when to come again are the caller's, like every status.
#pragma once

#include <memory>
#include <string>

#include "kube/api/api.hpp"
#include "kube/api/cluster_config.hpp"

namespace boost::asio {
class io_context;
}

namespace aliquot::kube {

struct ApiClientOptions {
  std::string user_agent = "aliquot";
  std::size_t connections = 16;
  Millis connect_limit = seconds(10);
  Millis answer_limit = seconds(60);
  std::size_t line_limit = 64UL << 20U;  // of one event of a watch
};

class ApiClient final : public Api {
 public:
  static Result<std::unique_ptr<ApiClient>> create(boost::asio::io_context& context,
                                                   ClusterConfig config,
                                                   ApiClientOptions options = {});
  ~ApiClient() override;

  void send(ApiRequest request, Done done) override;
  [[nodiscard]] std::unique_ptr<Watch> watch(std::string target, OnLine on_line,
                                             OnEnd on_end) override;

 private:
  struct State;
  explicit ApiClient(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace aliquot::kube
