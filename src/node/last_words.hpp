// What a process that is ended by the node is told about it, on its own standard error, so that the
// user finds it where the job's output goes. Whatever that is, a file on a server that never
// answers, a pipe that nobody reads: nobody here touches it. A process of the user's own takes it
// and may hang.
#pragma once

#include <string>

#include "node/process.hpp"
#include "node/spawn.hpp"

namespace aliquot::node {

// Writes to the standard error of the process, or of the nearest ancestor of the same user where
// its own goes nowhere. Returns when the descriptors are taken, or after a moment: from then on the
// process may be killed. The text is written with the rights of that user and none of ours, by a
// process that is given up after ten seconds.
void tell_process(const ProcessRef& process, Uid user, Gid group, const std::string& text);

}  // namespace aliquot::node
