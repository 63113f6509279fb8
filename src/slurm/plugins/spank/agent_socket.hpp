// The node agent behind its Unix socket: one HTTP request for each question, written by hand,
// because a library for it would be larger than all else here and would sit in every program of
// Slurm's. Only root's agent is believed.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "slurm/plugins/spank/step.hpp"

namespace aliquot::spank {

StepClock real_clock();

class AgentSocket final : public AgentLink {
 public:
  AgentSocket(std::string path, StepClock clock)
      : path_(std::move(path)), clock_(std::move(clock)) {}

  AgentReply ask(std::string_view path, std::string_view body, int timeout_ms) override;
  int send(std::string_view path, std::string_view body) override;
  AgentReply take(int connection, int timeout_ms) override;

 private:
  AgentReply try_once(const std::string& request, long deadline) const;

  std::string path_;
  StepClock clock_;
};

}  // namespace aliquot::spank
