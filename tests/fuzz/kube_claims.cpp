// Claims, the pods that name them, and what the API server asks the webhook, as anybody may write
// them: whatever is read never ends the program, and the webhook always answers once.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kube/model/claim.hpp"
#include "kube/model/claim_plan.hpp"
#include "kube/model/json_read.hpp"
#include "kube/scheduler/webhook.hpp"

using namespace aliquot;

namespace {

// Answers every request with the same text.
class EchoApi final : public kube::Api {
 public:
  EchoApi(int status, std::string_view body) : status_(status), body_(body) {}
  void send(kube::ApiRequest, Done done) override { waiting_ = std::move(done); }
  std::unique_ptr<kube::Watch> watch(std::string, OnLine, OnEnd) override { return nullptr; }
  void answer_all() {
    while (waiting_) {
      const Done done = std::exchange(waiting_, nullptr);
      done(kube::ApiResponse{status_, std::string(body_)});
    }
  }

 private:
  int status_;
  std::string_view body_;
  Done waiting_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const int status : {201, 409, 200}) {
    EchoApi api(status, status == 409 ? std::string_view(R"({"reason":"AlreadyExists"})") : text);
    kube::Webhook webhook(api, {}, gib(1));
    int answers = 0;
    webhook.admit(text, [&](const std::string& body) {
      ++answers;
      if (!kube::parse_object(body)) std::abort();
    });
    api.answer_all();
    if (answers != 1) std::abort();
  }
  const auto object = kube::parse_object(text);
  if (!object) return 0;
  static_cast<void>(kube::read_claim(*object, "aliquot.dev"));
  static_cast<void>(kube::claims_of(*object));
  const kube::ClaimTemplate wanted{"n", "gpu-share.aliquot.dev", 1, gib(8), 25};
  static_cast<void>(kube::is_template(*object, wanted));
  if (const auto plan = kube::plan_claims(*object, {}, gib(1)); plan && *plan) {
    for (const kube::ClaimTemplate& one : (*plan)->templates) {
      if (!kube::is_template(kube::write_template(one, "ns"), one)) std::abort();
    }
  }
  return 0;
}
