#include "engine/api_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "api/json.hpp"
#include "base/text.hpp"
#include "engine/api_errors.hpp"
#include "node/resource_limits.hpp"

namespace aliquot::engine {
namespace {

net::Response to_response(const Answer<void>& answer) {
  return answer ? net::Response{200, "{}"} : error_response(answer.error());
}
template <class T>
net::Response to_response(const Answer<T>& answer) {
  return answer ? net::Response{200, api::to_json(*answer)} : error_response(answer.error());
}

net::Response not_now(const Error& error) { return error_response(try_again(error).value()); }

net::Response not_here() { return misuse(404, "there is nothing under this path and method"); }

std::string value(const net::Request& request, const std::string& key) {
  const auto found = request.query.find(key);
  return found == request.query.end() ? "" : found->second;
}

// What kind of request it is, for the statistics: a few, whatever is asked.
std::string kind_of(std::string_view method, const std::vector<std::string>& path) {
  constexpr auto kRooms = std::to_array<std::string_view>(
      {"accounting", "accounts", "allocations", "cluster", "jobs", "node", "priorities",
       "reconfigure", "reservations", "shares", "statistics"});
  constexpr auto kVerbs = std::to_array<std::string_view>(
      {"attach", "cancel", "end", "hold", "processes", "release", "requeue", "resume", "steps",
       "suspend", "top", "update", "wait", "why"});
  if (std::ranges::find(kRooms, path[1]) == kRooms.end()) return "other";
  std::string kind = fmt::format("{} {}", method == "GET" ? "GET" : "POST", path[1]);
  if (path[1] != "jobs" || path.size() < 3) return kind;
  kind += "/ID";
  if (path.size() > 3 && std::ranges::find(kVerbs, path[3]) != kVerbs.end()) kind += "/" + path[3];
  return kind;
}

// The body, or the answer that says what is wrong with it.
template <class T>
tl::expected<T, net::Response> body_as(const net::Request& request) {
  auto parsed = api::from_json<T>(request.body.empty() ? "{}" : request.body);
  if (!parsed) return tl::make_unexpected(misuse(400, parsed.error().message));
  return std::move(*parsed);
}

}  // namespace

void ApiServer::answer_later(const net::Responder& respond, net::Response response) {
  if (const auto& unread = engine_.unread()) return respond(not_now(*unread));
  if (response.status != 200) return respond(std::move(response));
  engine_.after_commit([respond, response = std::move(response)] { respond(response); },
                       [this, respond] { respond(not_now(*engine_.trouble())); });
}

void ApiServer::answer(const net::Responder& respond, const Answer<void>& done, std::string body) {
  answer_later(respond, done ? net::Response{200, std::move(body)} : error_response(done.error()));
  changed_();
}

void ApiServer::hang_up(JobId job) {
  if (stopped_) return;
  engine_.clients().hang_up(job);
  changed_();
}

void ApiServer::handle(const net::Request& request, const net::Responder& respond) {
  std::vector<std::string> path;
  for (const std::string_view part : split(std::string_view(request.path).substr(1), '/')) {
    path.emplace_back(part);
  }
  if (path.size() < 2 || path[0] != "v1") return respond(not_here());
  if (const auto fine = engine_.admit(caller_of(request)); !fine) {
    return respond(error_response(fine.error()));
  }
  const Stopwatch watch;
  serve(request, path, respond);
  engine_.statistics().request(kind_of(request.method, path), caller_of(request).uid,
                               watch.microseconds());
}

void ApiServer::serve(const net::Request& request, const std::vector<std::string>& path,
                      const net::Responder& respond) {
  if (request.method == "GET") {
    get(request, path, respond);
    if (engine_.forecast().unfinished()) changed_();
  } else if (request.method == "POST") {
    // What begins something, a job or a drain, has its user's name on record.
    const bool begins = path.size() == 2 || path[1] == "node";
    if (begins && !engine_.knows(caller_of(request))) {
      return engine_.identify(caller_of(request), [this, request, path, respond] {
        if (stopped_) return;
        post(request, path, respond);
        changed_();
      });
    }
    post(request, path, respond);
    changed_();
  } else {
    respond(misuse(405, "GET and POST only"));
  }
}

void ApiServer::get(const net::Request& request, const std::vector<std::string>& path,
                    const net::Responder& respond) {
  const Caller caller = caller_of(request);
  if (path.size() == 2 && path[1] == "cluster") {
    return respond({200, api::to_json(engine_.views().cluster_info())});
  }
  if (path.size() == 2 && path[1] == "priorities") {
    return respond({200, api::to_json(engine_.views().priorities())});
  }
  if (path.size() == 2 && path[1] == "shares") {
    return respond({200, api::to_json(engine_.views().shares(caller))});
  }
  if (path.size() == 2 && path[1] == "statistics") {
    return respond({200, api::to_json(engine_.views().statistics())});
  }
  if (path.size() == 2 && path[1] == "accounting") {
    AccountingQuery query;
    if (const auto start = parse_digits(value(request, "start"))) query.start = WallTime(*start);
    if (const auto end = parse_digits(value(request, "end"))) query.end = WallTime(*end);
    if (const auto id = parse_digits(value(request, "id"))) query.id = *id;
    query.after = parse_digits(value(request, "after")).value_or(0);
    query.earlier = request.query.contains("duplicates");
    if (request.query.contains("name")) query.name = value(request, "name");
    auto jobs = engine_.views().accounting(caller, query);
    if (jobs && request.query.contains("user")) {
      const std::string user = value(request, "user");
      std::erase_if(jobs->jobs, [&](const api::JobInfo& job) { return job.user != user; });
    }
    return respond(to_response(jobs));
  }
  if (path.size() == 2 && path[1] == "accounts") {
    return respond({200, api::to_json(engine_.book())});
  }
  if (path.size() == 2 && path[1] == "reservations") {
    return respond({200, api::to_json(api::ReservationList{engine_.reservations()})});
  }
  if (path[1] != "jobs") return respond(not_here());
  if (path.size() == 2) {
    const Views::ListQuery query{.id = value(request, "id"),
                                 .user = value(request, "user"),
                                 .brief = request.query.contains("brief"),
                                 .live = request.query.contains("live"),
                                 .after = parse_digits(value(request, "after")).value_or(0)};
    api::JobListWriter list(engine_.live(), query.brief);
    const auto next =
        engine_.views().list(caller, query, [&](const api::JobInfo& job) { list.add(job); });
    return respond(next ? net::Response{200, list.take(*next)} : error_response(next.error()));
  }
  const std::string& id = path[2];
  if (path.size() == 3) {
    if (!request.query.contains("script"))
      return respond(to_response(engine_.views().show(caller, id)));
    const auto script = engine_.views().script(caller, id);
    if (!script) return respond(error_response(script.error()));
    return respond({200, *script, "text/plain"});
  }
  if (path.size() == 4 && path[3] == "why")
    return respond(to_response(engine_.views().why(caller, id)));
  if (path.size() == 4 && path[3] == "processes") {
    const auto asked =
        engine_.runs().list_processes(caller, id, [respond](const api::RunningProcesses& all) {
          respond({200, api::to_json(all)});
        });
    if (!asked) respond(error_response(asked.error()));
    return;
  }
  if (path.size() == 4 && path[3] == "wait") {
    const auto tell = [respond](const Answer<api::JobInfo>& job) { respond(to_response(job)); };
    const auto waiter = request.query.contains("ending")
                            ? engine_.views().wait_for_ending(caller, id, tell)
                            : engine_.views().wait(caller, id, tell);
    if (!waiter) return;
    return respond.on_close([this, waiter] { engine_.views().stop_waiting(*waiter); });
  }
  respond(not_here());
}

void ApiServer::post(const net::Request& request, const std::vector<std::string>& path,
                     const net::Responder& respond) {
  const Caller caller = caller_of(request);
  if (path.size() == 2 && path[1] == "jobs") {
    auto spec = body_as<api::JobSpec>(request);
    if (!spec) return respond(spec.error());
    // What the kernel says, whatever the request does.
    spec->limits = node::limits_of(caller.pid, caller.uid);
    if (request.query.contains("test")) {
      const auto question =
          engine_.queue().test(caller, std::move(*spec),
                               [respond](const auto& tested) { respond(to_response(tested)); });
      if (!question) return;
      return respond.on_close([this, question] {
        if (!stopped_) engine_.forecast().drop(*question);
      });
    }
    const auto job = engine_.queue().submit(caller, std::move(*spec));
    if (!job) {
      engine_.note_refused(to_api(job.error()).info.code);
      return answer_later(respond, error_response(job.error()));
    }
    return answer_later(respond, {200, api::to_json(api::Submitted{job->value()})});
  }
  if (path.size() == 2 && path[1] == "allocations") return allocate(request, respond);
  if (path.size() == 2 && path[1] == "reconfigure" && reload_) return reconfigure(caller, respond);
  if (path.size() == 3 && path[1] == "statistics" && path[2] == "reset") {
    const auto may = engine_.administer(caller);
    if (may) engine_.count_anew();
    return respond(to_response(may));
  }
  if (path.size() == 2 && path[1] == "accounts") {
    auto book = body_as<api::AccountBook>(request);
    if (!book) return respond(book.error());
    return answer_later(respond,
                        to_response(engine_.queue().accounts().replace(caller, std::move(*book))));
  }
  if (path.size() == 3 && path[1] == "node" && path[2] == "drain") {
    const auto spec = body_as<api::DrainSpec>(request);
    if (!spec) return respond(spec.error());
    if (!spec->gpus.empty()) {
      return answer_later(respond, to_response(engine_.queue().drain_gpus(caller, *spec)));
    }
    return answer_later(respond, to_response(engine_.queue().drain(caller, spec->reason)));
  }
  if (path.size() == 3 && path[1] == "node" && path[2] == "resume") {
    const auto spec = body_as<api::DrainSpec>(request);
    if (!spec) return respond(spec.error());
    if (!spec->gpus.empty()) {
      return answer_later(respond, to_response(engine_.queue().undrain_gpus(caller, spec->gpus)));
    }
    return answer_later(respond, to_response(engine_.queue().undrain(caller)));
  }
  if (path.size() <= 3 && path[1] == "reservations") {
    return post_reservation(request, path.size() == 3 ? path[2] : "create", respond);
  }
  if (path.size() >= 4 && path[1] == "jobs") return post_job(request, path, respond);
  respond(not_here());
}

void ApiServer::post_job(const net::Request& request, const std::vector<std::string>& path,
                         const net::Responder& respond) {
  const Caller caller = caller_of(request);
  const std::string& id = path[2];
  const std::string& verb = path[3];
  if (path.size() == 6 && verb == "steps" && path[5] == "end") {
    const auto end = body_as<api::StepEnd>(request);
    const auto number = parse_digits(path[4]);
    if (!end) return respond(end.error());
    if (!number) return respond(not_here());
    return answer_later(respond,
                        to_response(engine_.clients().end_step(caller, id, *number, *end)));
  }
  if (path.size() == 6 && verb == "steps" && path[5] == "cancel") {
    const auto spec = body_as<api::CancelSpec>(request);
    if (!spec) return respond(spec.error());
    return answer_later(respond,
                        to_response(engine_.clients().cancel_step(caller, id, path[4], *spec)));
  }
  if (path.size() != 4) return respond(not_here());
  if (verb == "top") return answer_later(respond, to_response(engine_.queue().top(caller, id)));
  if (verb == "cancel") {
    const auto spec = body_as<api::CancelSpec>(request);
    if (!spec) return respond(spec.error());
    return answer_later(respond, to_response(engine_.runs().cancel(caller, id, *spec)));
  }
  if (verb == "hold") {
    const bool as_user = request.query.contains("user");
    return answer_later(respond, to_response(engine_.queue().hold(caller, id, as_user)));
  }
  if (verb == "release")
    return answer_later(respond, to_response(engine_.queue().release(caller, id)));
  if (verb == "requeue") {
    const bool held = request.query.contains("hold");
    return answer_later(respond, to_response(engine_.runs().requeue(caller, id, held)));
  }
  if (verb == "suspend")
    return answer_later(respond, to_response(engine_.runs().suspend(caller, id)));
  if (verb == "resume")
    return answer_later(respond, to_response(engine_.runs().resume(caller, id)));
  if (verb == "update") {
    const auto edit = [&](api::JobSpec& spec) { return api::update_from_json(spec, request.body); };
    return answer_later(respond, to_response(engine_.queue().update(caller, id, edit)));
  }
  if (verb == "steps") return begin_step(request, id, respond);
  if (verb == "end") {
    const auto end = body_as<api::StepEnd>(request);
    if (!end) return respond(end.error());
    return answer_later(respond, to_response(engine_.clients().end_allocation(caller, id, *end)));
  }
  if (verb == "attach") {
    const auto job = engine_.clients().attach(caller, id);
    if (!job) return respond(error_response(job.error()));
    // It has changed nothing on record: no commit that fails can take it back.
    respond.on_close([this, job = *job] { hang_up(job); });
    return respond({200, "{}"});
  }
  respond(not_here());
}

void ApiServer::post_reservation(const net::Request& request, const std::string& verb,
                                 const net::Responder& respond) {
  const Caller caller = caller_of(request);
  const auto spec = body_as<api::ReservationSpec>(request);
  if (!spec) return respond(spec.error());
  Reservations& all = engine_.queue().reservations();
  if (verb == "create") {
    const auto name = all.create(caller, *spec);
    if (!name) return answer_later(respond, error_response(name.error()));
    return answer_later(respond, {200, api::to_json(api::ReservationInfo{.name = *name})});
  }
  if (verb == "update") return answer_later(respond, to_response(all.update(caller, *spec)));
  if (verb == "delete") return answer_later(respond, to_response(all.remove(caller, spec->name)));
  respond(not_here());
}

void ApiServer::reconfigure(const Caller& caller, const net::Responder& respond) {
  if (const auto may = engine_.administer(caller); !may) {
    return respond(error_response(may.error()));
  }
  const auto reloaded = reload_();
  if (!reloaded) return respond(misuse(400, reloaded.error().message));
  respond({200, api::to_json(api::Reconfigured{reloaded->changed, reloaded->needs_restart})});
}

void ApiServer::allocate(const net::Request& request, const net::Responder& respond) {
  auto spec = body_as<api::JobSpec>(request);
  if (!spec) return respond(spec.error());
  const auto job = engine_.clients().allocate(
      caller_of(request), std::move(*spec),
      [respond](const Answer<api::Allocation>& granted) { respond(to_response(granted)); });
  if (!job) {
    engine_.note_refused(to_api(job.error()).info.code);
    return respond(error_response(job.error()));
  }
  respond.on_close([this, job = *job] { hang_up(job); });
}

void ApiServer::begin_step(const net::Request& request, const std::string& id,
                           const net::Responder& respond) {
  auto spec = body_as<api::StepSpec>(request);
  if (!spec) return respond(spec.error());
  const auto step = engine_.clients().begin_step(
      caller_of(request), id, *spec,
      [respond](const Answer<api::Allocation>& granted) { respond(to_response(granted)); });
  if (!step) return respond(error_response(step.error()));
  respond.on_close([this, step = *step] {
    if (stopped_) return;
    engine_.clients().hang_up_step(step);
    changed_();
  });
}

}  // namespace aliquot::engine
