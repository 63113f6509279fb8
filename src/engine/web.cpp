#include "engine/web.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "api/json.hpp"
#include "base/exposition.hpp"
#include "base/text.hpp"
#include "engine/api_errors.hpp"
#include "show/door.hpp"
#include "show/gpu_metrics.hpp"
#include "show/job_metrics.hpp"
#include "show/page.hpp"

namespace aliquot::engine {
namespace {

net::Response denied(int status, const std::string& why) {
  return {status, api::to_json(api::ErrorInfo{"ESLURM_ACCESS_DENIED", why})};
}

std::vector<std::string> words_of(const std::string& path) {
  std::vector<std::string> parts;
  for (const std::string_view part : split(std::string_view(path).substr(1), '/')) {
    parts.emplace_back(part);
  }
  return parts;
}

// What may be asked for by TCP with a token: what a user does to his jobs, and nothing that needs
// to know his processes.
bool is_open_order(const std::vector<std::string>& path) {
  constexpr std::array<std::string_view, 6> kOrders{"cancel",  "hold",    "release",
                                                    "requeue", "suspend", "resume"};
  return path.size() == 4 && path[0] == "v1" && path[1] == "jobs" &&
         std::ranges::find(kOrders, path[3]) != kOrders.end();
}

}  // namespace

void Web::handle(const net::Request& request, const net::Responder& respond) {
  if (request.path.starts_with("/v1/token")) return make_token(request, respond);
  const auto path = words_of(request.path);
  if (path.size() == 4 && path[1] == "jobs" && path[3] == "log" && request.method == "GET") {
    return log(request, path[2], respond);
  }
  if (request.path == "/v1/me") return tell_who(caller_of(request), respond);
  if (request.path.starts_with("/v1/")) return api_.handle(request, respond);
  if (request.method != "GET") {
    return respond(misuse(405, "GET only"));
  }
  if (auto file = show::page_file(request)) return respond(std::move(*file));
  show(request, respond);
}

void Web::handle_remote(net::Request request, const net::Responder& respond) {
  const show::Listen& listen = engine_.settings().page;
  if (!show::calls_us(request, listen)) {
    return respond(denied(403, "this machine is not called so here: see page.names"));
  }
  request.peer.pid = 0;
  const std::string_view token = show::token_of(request);
  if (!token.empty()) {
    const auto user = engine_.tokens().user_of(token);
    if (!user) {
      return respond(denied(401, "this token is none, or has expired: 'aliquot token' makes one"));
    }
    request.peer.uid = user->value();
  }
  if (request.path.starts_with("/v1/token")) {
    return respond(denied(403, "tokens are made on the Unix socket: 'aliquot token'"));
  }
  if (request.method != "GET") {
    if (token.empty()) {
      return respond(denied(401, "this needs a token: 'aliquot token' makes one"));
    }
    if (!is_open_order(words_of(request.path))) {
      return respond(denied(403, "this is done on the Unix socket alone"));
    }
  }
  handle(request, respond);
}

void Web::show(const net::Request& request, const net::Responder& respond) {
  const auto may = engine_.admit(caller_of(request));
  if (request.path == "/") {
    // The frame of the page is no secret: whoever has a token gives it to the page.
    if (!may) return respond(show::front_page(std::nullopt));
    return respond(show::front_page(show::plain_of(engine_.views().picture(), engine_.now())));
  }
  if (!may) return respond(error_response(may.error()));
  if (request.path == "/events") return listen(request, respond);
  const std::string type(Exposition::kContentType);
  if (request.path == "/metrics") return respond({200, metrics(), type});
  constexpr std::string_view kSlurm = "/metrics/";
  if (request.path.starts_with(kSlurm)) {
    auto text = show::slurm_metrics(std::string_view(request.path).substr(kSlurm.size()),
                                    engine_.views().figures(), engine_.views().cluster_info(),
                                    {.users = engine_.settings().user_metrics});
    if (!text.empty()) return respond({200, std::move(text), type});
  }
  respond(misuse(404, "there is nothing under this path"));
}

std::string Web::metrics() const {
  const Views& views = engine_.views();
  const api::ClusterInfo cluster = views.cluster_info();
  const show::Detail detail{.users = engine_.settings().user_metrics};
  Exposition out;
  show::write_build(out, "aliquotd", cluster.daemon_version);
  show::write_gpus(out, cluster.node);
  show::write_mps(out, cluster.node);
  show::write_shares(out, cluster.node, views.holders(), detail);
  show::write_jobs(out, views.figures(), detail);
  return out.take();
}

void Web::listen(const net::Request& request, const net::Responder& respond) {
  show::Feed::May may;
  if (const std::string token(show::token_of(request)); !token.empty()) {
    may = [this, token] { return engine_.tokens().user_of(token).has_value(); };
  }

  const bool first = !feed_.watched();
  if (first) feed_.update(show::parts_of(engine_.views().picture(), engine_.views().history()));
  feed_.listen(respond, std::move(may));
  if (first && feed_.watched() && watched_) watched_();
}

bool Web::refresh() {
  if (!feed_.watched()) return false;
  feed_.update(show::parts_of(engine_.views().picture(), engine_.views().history()));
  return true;
}

void Web::tell_who(const Caller& caller, const net::Responder& respond) {
  if (caller.uid == Uid(net::kNoUser)) return respond({200, api::to_json(api::CallerInfo{})});
  // Once his name is known, as far as it will be.
  engine_.identify(caller, [this, caller, respond] {
    const api::CallerInfo me{.user = engine_.name_of(caller.uid),
                             .uid = caller.uid.value(),
                             .admin = engine_.administer(caller).has_value()};
    respond({200, api::to_json(me)});
  });
}

void Web::log(const net::Request& request, const std::string& job, const net::Responder& respond) {
  const auto file = engine_.views().log_of(caller_of(request), job);
  if (!file) return respond(error_response(file.error()));
  const auto from = request.query.find("from");
  const std::int64_t begin =
      from == request.query.end() ? 0 : parse_digits(from->second).value_or(0);
  logs_.read(file->user, file->group, file->path, begin,
             [respond, path = file->path](const Result<JobLog::Part>& part) {
               if (!part) {
                 const bool later = part.error().code == Error::Code::unavailable;
                 return respond(misuse(later ? 503 : 404, part.error().message));
               }
               api::LogPart shown;
               shown.path = path;
               shown.text = make_text(part->text);
               shown.begin = part->begin;
               shown.end = part->begin + std::ssize(part->text);
               respond({200, api::to_json(shown)});
             });
}

void Web::make_token(const net::Request& request, const net::Responder& respond) {
  const Caller caller = caller_of(request);
  if (const auto may = engine_.admit(caller); !may) return respond(error_response(may.error()));
  if (request.method != "POST") {
    return respond(misuse(405, "POST only"));
  }
  if (request.path == "/v1/token/revoke") {
    return api_.answer(respond, engine_.tokens().revoke(caller), "{}");
  }
  const auto spec = api::from_json<api::TokenSpec>(request.body.empty() ? "{}" : request.body);
  if (!spec) return respond(misuse(400, spec.error().message));
  auto made = engine_.tokens().make(caller, *spec);
  if (!made) return respond(error_response(made.error()));
  made->address = show::address_of(engine_.settings().page);
  api_.answer(respond, {}, api::to_json(*made));
}

}  // namespace aliquot::engine
