// Names of things, each its own type so that a job never passes for a user or a GPU for a node.
// They compare, hash and print; there is no arithmetic on them.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace aliquot {

template <class Tag, class Rep>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(Rep value) : value_(std::move(value)) {}

  [[nodiscard]] constexpr const Rep& value() const { return value_; }

  friend constexpr auto operator<=>(const Id&, const Id&) = default;

 private:
  Rep value_{};
};

using JobId = Id<struct JobIdTag, std::int64_t>;
// The kernel's ids of processes, users and groups.
using Pid = Id<struct PidTag, std::int32_t>;
using Uid = Id<struct UidTag, std::uint32_t>;
using Gid = Id<struct GidTag, std::uint32_t>;
// A job of any engine that holds a part of a GPU. It can be the name of a file: "7".
using HolderId = Id<struct HolderIdTag, std::string>;
// The device's UUID as the driver prints it: `GPU-…` or `MIG-…`.
using GpuId = Id<struct GpuIdTag, std::string>;
// The host name as the engine knows it.
using NodeId = Id<struct NodeIdTag, std::string>;

inline HolderId holder_of(JobId job) { return HolderId(std::to_string(job.value())); }

}  // namespace aliquot

template <class Tag, class Rep>
struct std::hash<aliquot::Id<Tag, Rep>> {
  std::size_t operator()(const aliquot::Id<Tag, Rep>& id) const noexcept {
    return std::hash<Rep>{}(id.value());
  }
};

template <class Tag, class Rep>
struct fmt::formatter<aliquot::Id<Tag, Rep>> : fmt::formatter<Rep> {
  auto format(const aliquot::Id<Tag, Rep>& id, fmt::format_context& context) const {
    return formatter<Rep>::format(id.value(), context);
  }
};
