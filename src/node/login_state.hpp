// Puts a process into the state that it would have after a login: no capability but root's own, no
// protection from the kernel's memory killer, usual priority and scheduling, every CPU that its
// group may use, a session keyring of its own. A daemon is often started with other values, and its
// children inherit them.
//
// Left alone: no_new_privs and the bounding set, so that sudo works in a job where it works in a
// login; and the resource limits, which differ from job to job (resource_limits.hpp).
//
// For between fork and exec: nothing here allocates. What the kernel does not let us change stays
// as it is: only a daemon of root's has something that a user must not get.
#pragma once

namespace aliquot::node {

// While still privileged.
void take_login_state();
// After the change of identity; root keeps what root has.
void drop_capabilities(bool is_root);
// Before the change of identity, so that nobody comes to see ours, and after it, so that it is the
// user's.
void join_own_keyring();

}  // namespace aliquot::node
