#include "cli/engine_choice.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sys/folder.hpp"

namespace aliquot::cli {
namespace {

namespace fs = std::filesystem;

TEST(EngineChoice, IsOneOfThree) {
  ::unsetenv("ALIQUOT_ENGINE");
  EXPECT_EQ(engine_asked().value(), std::nullopt);
  const Instead both{.slurm = "…", .kubernetes = "…"};
  EXPECT_EQ(refused_on_cluster("up", both), std::nullopt);
  ::setenv("ALIQUOT_ENGINE", "slurm", 1);
  EXPECT_EQ(engine_asked().value(), Engine::slurm);
  EXPECT_NE(refused_on_cluster("up", both), std::nullopt);
  EXPECT_EQ(refused_on_cluster("logs", {.kubernetes = "…"}), std::nullopt);
  for (const char* word : {"kube", "kubernetes"}) {
    ::setenv("ALIQUOT_ENGINE", word, 1);
    EXPECT_EQ(engine_asked().value(), Engine::kubernetes);
    EXPECT_NE(refused_on_cluster("logs", {.kubernetes = "…"}), std::nullopt);
    EXPECT_EQ(refused_on_cluster("x", {.slurm = "…"}), std::nullopt);
  }
  ::setenv("ALIQUOT_ENGINE", "embedded", 1);
  EXPECT_EQ(engine_asked().value(), Engine::embedded);
  ::setenv("ALIQUOT_ENGINE", "k8s", 1);
  EXPECT_EQ(engine_asked().error().message,
            "ALIQUOT_ENGINE is 'k8s': write slurm, kube or embedded");
  ::unsetenv("ALIQUOT_ENGINE");
}

TEST(EngineChoice, KubectlsPluginIsForKubernetes) {
  EXPECT_TRUE(is_kubectl_plugin("kubectl-aliquot"));
  EXPECT_TRUE(is_kubectl_plugin("/usr/bin/kubectl-aliquot"));
  EXPECT_FALSE(is_kubectl_plugin("/usr/bin/aliquot"));
  ::setenv("ALIQUOT_ENGINE", "slurm", 1);
  choose_kubernetes();
  EXPECT_EQ(engine_asked().value(), Engine::kubernetes);
  ::unsetenv("ALIQUOT_ENGINE");
}

TEST(EngineChoice, SlurmsOwnCommandIsNotALinkToOurs) {
  const auto folder = sys::TemporaryFolder::create("aliquot-engine").value();
  const fs::path root = folder.path();
  for (const auto* name : {"ours", "links", "hard", "plain", "theirs"})
    fs::create_directory(root / name);
  const auto make = [](const fs::path& path, fs::perms mode) {
    std::ofstream(path) << "#!/bin/sh\n";
    fs::permissions(path, mode);
  };
  make(root / "ours/aliquot", fs::perms(0755));
  fs::create_symlink(root / "ours/aliquot", root / "links/sbatch");
  fs::create_hard_link(root / "ours/aliquot", root / "hard/sbatch");
  make(root / "plain/sbatch", fs::perms(0644));
  make(root / "theirs/sbatch", fs::perms(0755));
  const auto folders = [&](std::initializer_list<const char*> names) {
    std::string text;
    for (const auto* name : names) text += (root / name).string() + ":";
    return text;
  };
  const auto own = (root / "ours/aliquot").string();
  EXPECT_EQ(find_other_program("sbatch", folders({"links", "hard"}), {own}), "");
  EXPECT_EQ(find_other_program("sbatch", folders({"links", "hard", "theirs"}), {own}),
            (root / "theirs/sbatch").string());
  // Another installation: neither hands over to the other for ever.
  fs::create_directory(root / "second");
  make(root / "second/sbatch", fs::perms(0755));
  const auto second = (root / "second/sbatch").string();
  const auto path = folders({"links", "second", "theirs"});
  EXPECT_EQ(find_other_program("sbatch", path, add_own_program(nullptr, own)), second);
  EXPECT_EQ(find_other_program("sbatch", path, add_own_program(own.c_str(), second)),
            (root / "theirs/sbatch").string());
  EXPECT_EQ(add_own_program("/a:/b", "/b"), (std::vector<std::string>{"/a", "/b"}));
  if (::geteuid() != 0) {
    EXPECT_EQ(find_other_program("sbatch", folders({"plain"}), {own}), "");
  }
}

}  // namespace
}  // namespace aliquot::cli
