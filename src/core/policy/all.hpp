// The makers of all policies, for make_policy alone. One policy a file.
#pragma once

#include <memory>

#include "core/policy.hpp"

namespace aliquot::core {

std::unique_ptr<Policy> make_aliquot(const Profile& profile);
std::unique_ptr<Policy> make_best_fit();
std::unique_ptr<Policy> make_dot_product();
std::unique_ptr<Policy> make_fgd(const Profile& profile);
std::unique_ptr<Policy> make_gpu_clustering();
std::unique_ptr<Policy> make_gpu_packing();
std::unique_ptr<Policy> make_least_occupied();
std::unique_ptr<Policy> make_least_utilised();

}  // namespace aliquot::core
