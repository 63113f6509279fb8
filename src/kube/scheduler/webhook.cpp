#include "kube/scheduler/webhook.hpp"

#include <spdlog/spdlog.h>

#include <boost/json.hpp>
#include <utility>

#include "base/text.hpp"
#include "kube/api/base64.hpp"
#include "kube/model/claim_plan.hpp"
#include "kube/model/json_read.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

std::string review(json::object response) {
  return json::serialize(json::object{{"apiVersion", "admission.k8s.io/v1"},
                                      {"kind", "AdmissionReview"},
                                      {"response", std::move(response)}});
}

std::string allow(const std::string& uid, const json::array* patch = nullptr) {
  json::object response{{"uid", uid}, {"allowed", true}};
  if (patch != nullptr) {
    response["patchType"] = "JSONPatch";
    response["patch"] = encode_base64(json::serialize(*patch));
  }
  return review(std::move(response));
}

std::string refuse(const std::string& uid, const Error& error) {
  constexpr int kUnprocessable = 422;
  constexpr int kTryAgain = 503;
  const bool again = error.code == Error::Code::unavailable;
  return review({{"uid", uid},
                 {"allowed", false},
                 {"status", json::object{{"code", again ? kTryAgain : kUnprocessable},
                                         {"message", error.message}}}});
}

// One pod's templates, one after the other. It keeps itself alive until it has answered.
class Making final : public std::enable_shared_from_this<Making> {
 public:
  Making(Api& api, std::string uid, std::string space, ClaimPlan plan, Webhook::Answer answer)
      : api_(api),
        uid_(std::move(uid)),
        space_(std::move(space)),
        plan_(std::move(plan)),
        answer_(std::move(answer)) {}

  void next() {
    if (at_ == plan_.templates.size()) return answer_(allow(uid_, &plan_.patch));
    send({.method = "POST",
          .target = object_path("apis/resource.k8s.io/v1", space_, "resourceclaimtemplates"),
          .body = json::serialize(write_template(wanted(), space_))},
         &Making::made);
  }

 private:
  using Object = Result<json::object>;

  [[nodiscard]] const ClaimTemplate& wanted() const { return plan_.templates[at_]; }

  void send(ApiRequest request, void (Making::*then)(const Object&)) {
    api_.send(std::move(request),
              [self = shared_from_this(), then](const Result<ApiResponse>& response) {
                ((*self).*then)(object_of(response));
              });
  }

  void made(const Object& object) {
    if (object) {
      spdlog::info("ResourceClaimTemplate {}/{} is made", space_, wanted().name);
      ++at_;
      return next();
    }
    if (object.error().code != Error::Code::already_exists) return fail_with(object.error());
    send({.target = object_path("apis/resource.k8s.io/v1", space_, "resourceclaimtemplates",
                                wanted().name)},
         &Making::found);
  }

  void found(const Object& object) {
    if (!object) return fail_with(object.error());
    if (!is_template(*object, wanted())) {
      return fail_with(
          {Error::Code::failed_state, "it asks for something else than its name says: delete it"});
    }
    ++at_;
    next();
  }

  void fail_with(const Error& error) {
    answer_(refuse(uid_, {error.code, fmt::format("ResourceClaimTemplate {}/{}: {}", space_,
                                                  wanted().name, error.message)}));
  }

  Api& api_;
  const std::string uid_;
  const std::string space_;
  const ClaimPlan plan_;
  const Webhook::Answer answer_;
  std::size_t at_ = 0;
};

}  // namespace

Webhook::Webhook(Api& api, Names names, Bytes unit)
    : api_(api), names_(std::move(names)), unit_(unit) {}

void Webhook::admit(std::string_view body, Answer answer) {
  const auto asked = parse_object(body);
  const auto* request = asked ? find_object(*asked, "request") : nullptr;
  if (request == nullptr) {
    return answer(refuse("", {Error::Code::invalid_argument, "this is no AdmissionReview"}));
  }
  const std::string uid(find_text(*request, "uid"));
  const auto* pod = find_object(*request, "object");
  if (find_text(*request, "operation") != "CREATE" || pod == nullptr ||
      find_text(*pod, "kind") != "Pod") {
    return answer(allow(uid));
  }
  auto plan = plan_claims(*pod, names_, unit_);
  if (!plan) return answer(refuse(uid, plan.error()));
  if (!*plan) return answer(allow(uid));
  if (find_flag(*request, "dryRun")) return answer(allow(uid, &(*plan)->patch));
  std::make_shared<Making>(api_, uid, std::string(find_text(*request, "namespace")),
                           std::move(**plan), std::move(answer))
      ->next();
}

}  // namespace aliquot::kube
