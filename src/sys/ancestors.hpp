// The ancestors of a process, for questions that one of them answers.
#pragma once

#include "sys/process.hpp"

namespace aliquot::sys {

// ask(pid) gives an optional. It is asked about the parent, the parent's parent and so on, until it
// answers or 64 were asked; init is not.
template <class Ask>
auto ask_ancestors(Pid pid, const Ask& ask) -> decltype(ask(pid)) {
  for (int depth = 0; depth < 64; ++depth) {
    const auto process = read_process(pid);
    if (!process || process->parent.value() <= 1) break;
    pid = process->parent;
    if (const auto answer = ask(pid)) return answer;
  }
  return {};
}

}  // namespace aliquot::sys
