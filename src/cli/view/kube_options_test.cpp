#include "cli/view/kube_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aliquot::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(KubeOptions, AreHandedOn) {
  EXPECT_THAT(KubeOptions().words(), IsEmpty());
  EXPECT_THAT(
      (KubeOptions{.kubeconfig = "/k", .context = "c", .name_space = "n", .all_namespaces = true})
          .words(),
      ElementsAre("--kubeconfig=/k", "--context=c", "--namespace=n", "--all-namespaces"));
}

TEST(KubeOptions, AreRefusedElsewhere) {
  const KubeOptions some{.name_space = "n"};
  EXPECT_EQ(some.misplaced(Engine::kubernetes), std::nullopt);
  EXPECT_EQ(KubeOptions().misplaced(Engine::slurm), std::nullopt);
  EXPECT_EQ(some.misplaced(Engine::embedded),
            "--namespace is for Kubernetes: say 'kubectl aliquot', or set ALIQUOT_ENGINE=kube");
}

}  // namespace
}  // namespace aliquot::cli
