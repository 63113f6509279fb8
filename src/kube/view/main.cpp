// `aliquot-kube view`: a Kubernetes cluster as the JSON that `aliquot status`, `gpus`, `top` and
// `why` print from. The commands run it, so that they need no TLS themselves.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "api/json.hpp"
#include "base/text.hpp"
#include "kube/api/api_client.hpp"
#include "kube/api/cluster_config.hpp"
#include "kube/view/overview.hpp"
#include "kube/view/questions.hpp"
#include "kube/view/why.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::kube {
namespace {

struct Options {
  std::string kubeconfig;
  std::string context;
  std::string name_space;
  std::string domain = "aliquot.dev";
  bool all = false;
  bool quota = false;
  std::string why;  // a pod; empty: the whole cluster
};

int complain(std::string_view text) {
  fmt::print(stderr, "aliquot: {}\n", make_plain(text));
  return 1;
}

// The pod that was asked for; of `last` the newest that has to do with GPUs.
Result<const SeenPod*> find_pod(const ClusterLook& look, const std::string& word,
                                const std::string& name_space, const Clock& clock) {
  if (word == "last") {
    const auto state = TRY(count_holdings(look, clock));
    const SeenPod* newest = nullptr;
    for (const SeenPod& pod : look.pods) {
      if (!look.name_space.empty() && pod.pod.id.space != look.name_space) continue;
      const auto asked = asked_of(look, *state, pod);
      if (asked && !asked->asks() && !pod.grant) continue;
      if (newest == nullptr ||
          std::pair(pod.created, pod.waits()) > std::pair(newest->created, newest->waits())) {
        newest = &pod;
      }
    }
    if (newest != nullptr) return newest;
    return fail(Error::Code::not_found, "no pod {} asks for GPUs",
                look.name_space.empty() ? "here" : "in namespace " + look.name_space);
  }
  const auto named = parse_pod_word(word);
  if (!named) {
    return fail(Error::Code::invalid_argument,
                "{} is no pod's name: write pod/NAME, NAMESPACE/NAME or last", quote(word));
  }
  const std::string& space = named->space.empty() ? name_space : named->space;
  for (const SeenPod& pod : look.pods) {
    if (pod.pod.id.name == named->name && pod.pod.id.space == space) return &pod;
  }
  return fail(Error::Code::not_found, "there is no pod {} in namespace {}", named->name, space);
}

Result<std::string> view(const Options& options) {
  ClusterConfig config = TRY(find_cluster_config(options.kubeconfig, options.context));
  if (!options.name_space.empty() && !is_name(options.name_space, false)) {
    return fail(Error::Code::invalid_argument, "{} is no namespace's name",
                quote(options.name_space));
  }
  Wanted wanted{.names = {.domain = options.domain}};
  wanted.name_space = options.name_space.empty() ? config.name_space : options.name_space;
  wanted.all_spaces = options.all;
  wanted.quota = options.quota;
  if (const auto named = parse_pod_word(options.why); named && !named->space.empty()) {
    wanted.name_space = named->space;
  }
  boost::asio::io_context context(1);
  const auto api = TRY(
      ApiClient::create(context, std::move(config),
                        {.user_agent = "aliquot/" ALIQUOT_VERSION, .answer_limit = seconds(20)}));
  Questions questions(context, *api);
  auto look = TRY(questions.look(wanted));
  const sys::SystemClock clock;
  if (options.why.empty()) return api::to_json(TRY(overview_of(look, clock)));
  const SeenPod* pod = TRY(find_pod(look, options.why, wanted.name_space, clock));
  auto events = questions.events_of(pod->pod.id);
  if (!events)
    look.gaps.push_back(fmt::format("Its events cannot be had: {}.", events.error().message));
  return api::to_json(TRY(why_of(look, *pod, events ? *events : std::vector<SeenEvent>(), clock)));
}

int print_view(const Options& options) {
  const auto text = view(options);
  if (!text) return complain(text.error().message);
  fmt::print("{}\n", *text);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  CLI::App app("A Kubernetes cluster for 'aliquot status' and the like.", "aliquot-kube");
  app.set_version_flag("--version", "aliquot-kube " ALIQUOT_VERSION);
  app.require_subcommand(1);
  Options options;
  if (const char* domain = std::getenv("ALIQUOT_KUBE_DOMAIN"); domain != nullptr && *domain != 0) {
    options.domain = domain;
  }
  auto* command = app.add_subcommand("view", "The cluster and its pods with GPUs, as JSON");
  command->add_option("--kubeconfig", options.kubeconfig,
                      "The file that says where the cluster is");
  command->add_option("--context", options.context, "Of that file");
  command->add_option("-n,--namespace", options.name_space, "Whose pods are yours");
  command->add_flag("-A,--all-namespaces", options.all, "All pods are");
  command->add_flag("--quota", options.quota, "Also what the namespace may have");
  command->add_option("--why", options.why, "A pod instead: why it waits");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked) == 0 ? 0 : 1;
  } catch (const CLI::ParseError& error) {
    complain(error.what());
    return 2;
  }
  return print_view(options);
}

}  // namespace
}  // namespace aliquot::kube

int main(int argc, char** argv) {
  try {
    return aliquot::kube::run(argc, argv);
  } catch (const std::exception& error) {
    return aliquot::kube::complain(error.what());
  }
}
