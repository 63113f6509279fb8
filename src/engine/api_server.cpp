#include "engine/api_server.hpp"

#include <memory>
#include <utility>

#include "api/json.hpp"
#include "base/text.hpp"
#include "node/resource_limits.hpp"

namespace aliquot::engine {
namespace {

net::Response error_response(const Refused& refused) {
  return {refused.status, api::to_json(refused.error)};
}

net::Response to_response(const Answer<void>& answer) {
  return answer ? net::Response{200, "{}"} : error_response(answer.error());
}
template <class T>
net::Response to_response(const Answer<T>& answer) {
  return answer ? net::Response{200, api::to_json(*answer)} : error_response(answer.error());
}

net::Response not_now(const Error& error) { return error_response(try_again(error).value()); }

net::Response not_here() {
  return error_response({404, {"", "there is nothing under this path and method"}});
}

Caller caller_of(const net::Request& request) {
  return {Uid(request.peer.uid), node::Pid(request.peer.pid)};
}

std::string value(const net::Request& request, const std::string& key) {
  const auto found = request.query.find(key);
  return found == request.query.end() ? "" : found->second;
}

// The body, or the answer that says what is wrong with it.
template <class T>
Answer<T> body_as(const net::Request& request) {
  auto parsed = api::from_json<T>(request.body.empty() ? "{}" : request.body);
  if (!parsed) return refuse(400, "", parsed.error().message);
  return std::move(*parsed);
}

}  // namespace

void ApiServer::answer_later(const net::Responder& respond, net::Response response) {
  if (const auto& unread = engine_.unread()) return respond(not_now(*unread));
  if (response.status != 200) return respond(std::move(response));
  engine_.after_commit([respond, response = std::move(response)] { respond(response); },
                       [this, respond] { respond(not_now(*engine_.trouble())); });
}

void ApiServer::hang_up(JobId job) {
  if (stopped_) return;
  engine_.hang_up(job);
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
  if (request.method == "GET") {
    get(request, path, respond);
  } else if (request.method == "POST") {
    post(request, path, respond);
    changed_();
  } else {
    respond(error_response({405, {"", "GET and POST only"}}));
  }
}

void ApiServer::get(const net::Request& request, const std::vector<std::string>& path,
                    const net::Responder& respond) {
  const Caller caller = caller_of(request);
  if (path.size() == 2 && path[1] == "cluster") {
    return respond({200, api::to_json(engine_.cluster_info())});
  }
  if (path.size() == 2 && path[1] == "accounting") {
    AccountingQuery query;
    if (const auto start = parse_digits(value(request, "start"))) query.start = WallTime(*start);
    if (const auto end = parse_digits(value(request, "end"))) query.end = WallTime(*end);
    if (const auto id = parse_digits(value(request, "id"))) query.id = *id;
    query.after = parse_digits(value(request, "after")).value_or(0);
    if (request.query.contains("name")) query.name = value(request, "name");
    auto jobs = engine_.accounting(caller, query);
    if (jobs && request.query.contains("user")) {
      const std::string user = value(request, "user");
      std::erase_if(jobs->jobs, [&](const api::JobInfo& job) { return job.user != user; });
    }
    return respond(to_response(jobs));
  }
  if (path[1] != "jobs") return respond(not_here());
  if (path.size() == 2) {
    auto jobs = engine_.list(caller, {.id = value(request, "id"),
                                      .user = value(request, "user"),
                                      .brief = request.query.contains("brief"),
                                      .live = request.query.contains("live"),
                                      .after = parse_digits(value(request, "after")).value_or(0)});
    return respond(jobs ? net::Response{200, std::move(*jobs)} : error_response(jobs.error()));
  }
  const std::string& id = path[2];
  if (path.size() == 3) {
    if (!request.query.contains("script")) return respond(to_response(engine_.show(caller, id)));
    const auto script = engine_.script(caller, id);
    if (!script) return respond(error_response(script.error()));
    return respond({200, *script, "text/plain"});
  }
  if (path.size() == 4 && path[3] == "why") return respond(to_response(engine_.why(caller, id)));
  if (path.size() == 4 && path[3] == "wait") {
    const auto waiter = engine_.wait(
        caller, id, [respond](const Answer<api::JobInfo>& ended) { respond(to_response(ended)); });
    if (!waiter) return;
    return respond.on_close([this, waiter] { engine_.stop_waiting(*waiter); });
  }
  respond(not_here());
}

void ApiServer::post(const net::Request& request, const std::vector<std::string>& path,
                     const net::Responder& respond) {
  const Caller caller = caller_of(request);
  if (path.size() == 2 && path[1] == "jobs") {
    auto spec = body_as<api::JobSpec>(request);
    if (!spec) return respond(error_response(spec.error()));
    // What the kernel says, whatever the request does.
    spec->limits = node::limits_of(caller.pid, caller.uid);
    if (request.query.contains("test")) {
      return respond(to_response(engine_.test(caller, std::move(*spec))));
    }
    return answer_later(respond, to_response(engine_.submit(caller, std::move(*spec))));
  }
  if (path.size() == 2 && path[1] == "allocations") return allocate(request, respond);
  if (path.size() == 3 && path[1] == "node" && path[2] == "drain") {
    // Of WhyInfo only the reason is looked at: {"reason": …}.
    auto reason = body_as<api::WhyInfo>(request);
    if (!reason) return respond(error_response(reason.error()));
    return answer_later(respond, to_response(engine_.drain(caller, reason->reason)));
  }
  if (path.size() == 3 && path[1] == "node" && path[2] == "resume") {
    return answer_later(respond, to_response(engine_.undrain(caller)));
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
    if (!end) return respond(error_response(end.error()));
    if (!number) return respond(not_here());
    return answer_later(respond, to_response(engine_.end_step(caller, id, *number, *end)));
  }
  if (path.size() == 6 && verb == "steps" && path[5] == "cancel") {
    const auto spec = body_as<api::CancelSpec>(request);
    if (!spec) return respond(error_response(spec.error()));
    return answer_later(respond, to_response(engine_.cancel_step(caller, id, path[4], *spec)));
  }
  if (path.size() != 4) return respond(not_here());
  if (verb == "top") return answer_later(respond, to_response(engine_.top(caller, id)));
  if (verb == "cancel") {
    const auto spec = body_as<api::CancelSpec>(request);
    if (!spec) return respond(error_response(spec.error()));
    return answer_later(respond, to_response(engine_.cancel(caller, id, *spec)));
  }
  if (verb == "hold") return answer_later(respond, to_response(engine_.hold(caller, id)));
  if (verb == "release") return answer_later(respond, to_response(engine_.release(caller, id)));
  if (verb == "requeue") {
    const bool held = request.query.contains("hold");
    return answer_later(respond, to_response(engine_.requeue(caller, id, held)));
  }
  if (verb == "suspend") return answer_later(respond, to_response(engine_.suspend(caller, id)));
  if (verb == "resume") return answer_later(respond, to_response(engine_.resume(caller, id)));
  if (verb == "update") {
    return answer_later(respond, to_response(engine_.update(caller, id, request.body)));
  }
  if (verb == "steps") return begin_step(request, id, respond);
  if (verb == "end") {
    const auto end = body_as<api::StepEnd>(request);
    if (!end) return respond(error_response(end.error()));
    return answer_later(respond, to_response(engine_.end_allocation(caller, id, *end)));
  }
  if (verb == "attach") {
    const auto job = engine_.attach(caller, id);
    if (!job) return respond(error_response(job.error()));
    // It has changed nothing on record: no commit that fails can take it back.
    respond.on_close([this, job = *job] { hang_up(job); });
    return respond({200, "{}"});
  }
  respond(not_here());
}

void ApiServer::allocate(const net::Request& request, const net::Responder& respond) {
  auto spec = body_as<api::JobSpec>(request);
  if (!spec) return respond(error_response(spec.error()));
  const auto job = engine_.allocate(
      caller_of(request), std::move(*spec),
      [respond](const Answer<api::Allocation>& granted) { respond(to_response(granted)); });
  if (!job) return respond(error_response(job.error()));
  respond.on_close([this, job = *job] { hang_up(job); });
}

void ApiServer::begin_step(const net::Request& request, const std::string& id,
                           const net::Responder& respond) {
  auto spec = body_as<api::StepSpec>(request);
  if (!spec) return respond(error_response(spec.error()));
  const auto step = engine_.begin_step(caller_of(request), id, *spec);
  if (step) {
    respond.on_close([this, job = JobId(step->job_id), attempt = step->job.restarts,
                      number = step->step_id.value_or(0)] {
      if (stopped_) return;
      engine_.hang_up_step(job, attempt, number);
      changed_();
    });
  }
  answer_later(respond, to_response(step));
}

}  // namespace aliquot::engine
