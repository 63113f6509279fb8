#include "node/device_filter.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace aliquot::node {
namespace {

// Registers.
constexpr __u8 kAnswer = BPF_REG_0;
constexpr __u8 kQuestion = BPF_REG_1;
constexpr __u8 kType = BPF_REG_2;
constexpr __u8 kMajor = BPF_REG_3;
constexpr __u8 kMinor = BPF_REG_4;

bpf_insn instruction(int code, __u8 target, __u8 source, int offset, __s32 value) {
  bpf_insn made{};
  made.code = static_cast<__u8>(code);
  made.dst_reg = target & 0xfU;
  made.src_reg = source & 0xfU;
  made.off = static_cast<__s16>(offset);
  made.imm = value;
  return made;
}

bpf_insn load_field(__u8 target, std::size_t offset) {
  return instruction(BPF_LDX | BPF_MEM | BPF_W, target, kQuestion, static_cast<int>(offset), 0);
}
bpf_insn skip_unless(__u8 field, unsigned value, int skipped) {
  // The 32-bit comparison: a major number is unsigned, an immediate value is not.
  return instruction(BPF_JMP32 | BPF_JNE | BPF_K, field, 0, skipped, static_cast<__s32>(value));
}
void answer(std::vector<bpf_insn>* program, bool allowed) {
  program->push_back(instruction(BPF_ALU64 | BPF_MOV | BPF_K, kAnswer, 0, 0, allowed ? 1 : 0));
  program->push_back(instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
}

long bpf(int command, bpf_attr* attributes) {
  return syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

tl::unexpected<Error> refused(std::string_view what) {
  auto code = Error::Code::internal;  // it finds fault with the program
  if (errno == EPERM) code = Error::Code::permission_denied;
  if (errno == ENOSYS || errno == EOPNOTSUPP) code = Error::Code::unsupported;
  return fail(code, "{}: {}", what, std::strerror(errno));
}

}  // namespace

std::vector<bpf_insn> device_program(const std::vector<DeviceNumber>& hidden) {
  std::vector<bpf_insn> program;
  // access_type is the access in the upper half and the type of the device in the lower.
  program.push_back(load_field(kType, offsetof(bpf_cgroup_dev_ctx, access_type)));
  program.push_back(instruction(BPF_ALU64 | BPF_AND | BPF_K, kType, 0, 0, 0xffff));
  program.push_back(load_field(kMajor, offsetof(bpf_cgroup_dev_ctx, major)));
  program.push_back(load_field(kMinor, offsetof(bpf_cgroup_dev_ctx, minor)));
  program.push_back(skip_unless(kType, BPF_DEVCG_DEV_CHAR, 1));
  program.push_back(instruction(BPF_JMP | BPF_JA, 0, 0, 2, 0));
  answer(&program, true);
  for (const auto& device : hidden) {
    program.push_back(skip_unless(kMajor, device.major, 3));
    program.push_back(skip_unless(kMinor, device.minor, 2));
    answer(&program, false);
  }
  answer(&program, true);
  return program;
}

Result<sys::Fd> load_device_program(const std::vector<bpf_insn>& program) {
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  attributes.insns = reinterpret_cast<__u64>(program.data());
  attributes.insn_cnt = static_cast<__u32>(program.size());
  attributes.license = reinterpret_cast<__u64>("Apache-2.0");
  sys::Fd loaded(static_cast<int>(bpf(BPF_PROG_LOAD, &attributes)));
  if (!loaded) return refused("the kernel takes no device program");
  return loaded;
}

Result<void> hide_devices(const std::string& folder, const std::vector<DeviceNumber>& hidden) {
  const auto program = TRY(load_device_program(device_program(hidden)));
  const sys::Fd group(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!group) return refused(fmt::format("cannot open {}", folder));
  bpf_attr attributes{};
  attributes.target_fd = static_cast<__u32>(group.get());
  attributes.attach_bpf_fd = static_cast<__u32>(program.get());
  attributes.attach_type = BPF_CGROUP_DEVICE;
  attributes.attach_flags = BPF_F_ALLOW_MULTI;  // every one of them must say yes
  if (bpf(BPF_PROG_ATTACH, &attributes) != 0) {
    return refused(fmt::format("cannot attach a device program to {}", folder));
  }
  return {};
}

}  // namespace aliquot::node
