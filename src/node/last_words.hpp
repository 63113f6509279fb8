// What a process that is ended by the node is told about it, on its own standard error, so that the
// user finds it where the job's output goes. Signals first, words later, and from somebody who may
// hang: the descriptor is taken before the signal, and written to by a process of the user's own.
#pragma once

#include <string>

#include "node/process.hpp"
#include "node/spawn.hpp"

namespace aliquot::node {

// The standard error of the process, or of the nearest ancestor of the same user, where its own
// goes nowhere. Opens nothing and waits for nothing. Empty where there is none to be had.
Fd standard_error_of(const ProcessRef& process, Uid user);

// Returns at once. The text is written with the rights of that user and none of ours, by a process
// that is given up after ten seconds.
void write_as(Uid user, Gid group, Fd to, const std::string& text);

}  // namespace aliquot::node
