// Tells a process that the node is about to end it why, on the standard error of that process:
// there the user finds it with the job's output. That may be a file on a server that never answers,
// or a pipe that nobody reads. So we never write to it ourselves: a process with the user's rights
// does, and that one may hang.
#pragma once

#include <string>

#include "node/process_tree.hpp"
#include "node/spawn.hpp"

namespace aliquot::node {

// Writes to the standard error of the process, or of the nearest ancestor of the same user where
// its own goes nowhere. Returns when the descriptors are taken, or after a moment: from then on the
// process may be killed. The text is written with the rights of that user and none of ours, by a
// process that is given up after ten seconds.
void tell_process(const sys::ProcessRef& process, Uid user, Gid group, const std::string& text);

}  // namespace aliquot::node
