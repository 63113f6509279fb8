// Keeping a cgroup v2 from opening devices. v2 has no file for this: a program of the kernel's BPF
// machine, attached to the group, says yes or no to each opening. Ours says no to the devices it
// was made with and yes to all others. Written by hand: it is four instructions for each device,
// and no library is needed.
#pragma once

#include <linux/bpf.h>

#include <string>
#include <vector>

#include "base/result.hpp"
#include "node/cgroup.hpp"
#include "sys/fd.hpp"

namespace aliquot::node {

// Character devices that may be neither opened nor made, in a group and all below it.
std::vector<bpf_insn> device_program(const std::vector<DeviceNumber>& hidden);

// Into the kernel, which checks it. The descriptor keeps it there. Fails with permission_denied or
// unsupported where the kernel will not have it.
Result<sys::Fd> load_device_program(const std::vector<bpf_insn>& program);

// From now on, beside what is attached already; it goes with the folder.
Result<void> hide_devices(const std::string& folder, const std::vector<DeviceNumber>& hidden);

}  // namespace aliquot::node
