#include "kube/api/api_client.hpp"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "kube/api/followed_file.hpp"
#include "net/async_client.hpp"

namespace aliquot::kube {

namespace {

// Beyond the end that the server was asked to keep a watch open for.
constexpr Millis kWatchGrace = seconds(60);
constexpr Millis kLongestSilence = minutes(15);

// timeoutSeconds of a watch's query: afterwards nothing can come any more.
Millis silence_limit(std::string_view target) {
  constexpr std::string_view kKey = "timeoutSeconds=";
  const auto at = target.find(kKey);
  if (at == std::string_view::npos) return kLongestSilence;
  const std::string_view rest = target.substr(at + kKey.size());
  const auto number = parse_digits(rest.substr(0, rest.find('&')));
  if (!number || *number > 86'400) return kLongestSilence;
  return seconds(*number) + kWatchGrace;
}

}  // namespace

struct ApiClient::State : std::enable_shared_from_this<State> {
  State(ClusterConfig config_, ApiClientOptions options_, net::AsyncClient client_)
      : config(std::move(config_)), options(std::move(options_)), client(std::move(client_)) {
    if (!config.token_file.empty()) token_file.emplace(config.token_file);
  }

  // Empty: we show none.
  std::string token() {
    std::string text = config.token;
    if (token_file) text = token_file->text().value_or(std::move(text));
    const auto last = text.find_last_not_of(" \t\r\n");
    text.resize(last == std::string::npos ? 0 : last + 1);
    return text;
  }

  net::OutgoingRequest outgoing(const ApiRequest& request, const std::string& shown) const {
    net::OutgoingRequest out{.method = request.method,
                             .target = config.path_prefix + request.target,
                             .body = request.body};
    if (!request.body.empty()) out.content_type = request.content_type;
    out.headers = {{"Accept", "application/json"}, {"User-Agent", options.user_agent}};
    if (!shown.empty()) out.headers.emplace_back("Authorization", "Bearer " + shown);
    return out;
  }

  void send(ApiRequest request, Done done, bool again);

  ClusterConfig config;
  ApiClientOptions options;
  net::AsyncClient client;
  std::optional<FollowedFile> token_file;
};

void ApiClient::State::send(ApiRequest request, Done done, bool again) {
  const std::string shown = token();
  auto out = outgoing(request, shown);
  client.send(std::move(out),
              [weak = weak_from_this(), request = std::move(request), done = std::move(done), shown,
               again](Result<net::Response> answer) mutable {
                const auto self = weak.lock();
                if (!self) return;
                if (answer && answer->status == 401 && self->token_file && !again) {
                  self->token_file->read_again();
                  if (self->token() != shown)
                    return self->send(std::move(request), std::move(done), true);
                }
                if (!answer) return done(tl::unexpected<Error>(std::move(answer.error())));
                done(ApiResponse{answer->status, std::move(answer->body)});
              });
}

namespace {

// Cuts the pieces of a watch into lines.
struct WatchLines {
  Api::OnLine on_line;
  Api::OnEnd on_end;
  std::size_t limit = 0;
  int status = 0;
  std::string rest;  // of a line that has not ended, or the body of an answer that is no watch
  bool too_long = false;
  net::AsyncClient::Handle handle;
  bool over = false;

  void take(std::string_view piece);
  void end(Result<void> last);
};

void WatchLines::take(std::string_view piece) {
  if (over || too_long) return;
  if (status != 200) {
    rest +=
        piece.substr(0, std::min(piece.size(), (64UL << 10U) - std::min(rest.size(), 64UL << 10U)));
    return;
  }
  while (!over) {
    const auto end_of_line = piece.find('\n');
    if (end_of_line == std::string_view::npos) break;
    if (rest.empty()) {
      on_line(piece.substr(0, end_of_line));
    } else {
      rest += piece.substr(0, end_of_line);
      const std::string line = std::exchange(rest, {});
      on_line(line);
    }
    piece.remove_prefix(end_of_line + 1);
  }
  if (over) return;
  if (rest.size() + piece.size() > limit) {
    too_long = true;
    handle.cancel();
    return end(
        fail(Error::Code::out_of_range, "an event of the watch is larger than {} bytes", limit));
  }
  rest += piece;
}

void WatchLines::end(Result<void> last) {
  if (std::exchange(over, true) || !on_end) return;
  if (!last) return on_end(tl::unexpected<Error>(std::move(last.error())));
  // Half of a line is an event that did not come whole: from where we were, it comes again.
  on_end(ApiResponse{status, status == 200 ? std::string() : std::move(rest)});
}

class ClientWatch final : public Watch {
 public:
  explicit ClientWatch(std::shared_ptr<WatchLines> lines) : lines_(std::move(lines)) {}
  ~ClientWatch() override {
    lines_->over = true;
    lines_->handle.cancel();
  }

 private:
  std::shared_ptr<WatchLines> lines_;
};

}  // namespace

Result<std::unique_ptr<ApiClient>> ApiClient::create(boost::asio::io_context& context,
                                                     ClusterConfig config,
                                                     ApiClientOptions options) {
  auto client = TRY(net::AsyncClient::create(
      context, {.host = config.host,
                .port = config.port,
                .use_tls = config.use_tls,
                .tls = config.tls,
                .connections = options.connections,
                .connect_limit = options.connect_limit,
                .first_byte_limit = options.answer_limit,
                .whole_limit = options.answer_limit + options.connect_limit}));
  auto state = std::make_shared<State>(std::move(config), std::move(options), std::move(client));
  if (state->token_file) TRY(state->token_file->text());
  return std::unique_ptr<ApiClient>(new ApiClient(std::move(state)));
}

ApiClient::ApiClient(std::shared_ptr<State> state) : state_(std::move(state)) {}
ApiClient::~ApiClient() = default;

void ApiClient::send(ApiRequest request, Done done) {
  state_->send(std::move(request), std::move(done), false);
}

std::unique_ptr<Watch> ApiClient::watch(std::string target, OnLine on_line, OnEnd on_end) {
  auto lines = std::make_shared<WatchLines>();
  lines->on_line = std::move(on_line);
  lines->on_end = std::move(on_end);
  lines->limit = state_->options.line_limit;
  auto out = state_->outgoing({.target = std::move(target)}, state_->token());
  out.silence_limit = silence_limit(out.target);
  // What is called holds the lines: their watch may be destroyed from within.
  const std::weak_ptr<State> weak = state_;
  lines->handle = state_->client.stream(
      std::move(out), {[lines](const net::Response& header) { lines->status = header.status; },
                       [lines](std::string_view piece) {
                         const auto kept = lines;
                         kept->take(piece);
                       },
                       [lines, weak](Result<void> last) {
                         const auto kept = lines;
                         const auto state = weak.lock();
                         if (state && kept->status == 401 && state->token_file) {
                           state->token_file->read_again();
                         }
                         kept->end(std::move(last));
                       }});
  return std::make_unique<ClientWatch>(std::move(lines));
}

}  // namespace aliquot::kube
