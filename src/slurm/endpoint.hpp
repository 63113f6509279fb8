// Where samples go, from the site's settings and slurm.conf: every SlurmctldHost, unless the
// settings name a host, with munge's socket as Slurm itself uses it (AuthInfo=socket=…).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "slurm/samples.hpp"
#include "slurm/settings.hpp"

namespace aliquot::slurm {

// What samples need of slurm.conf.
struct ConfExcerpt {
  std::vector<std::string> controllers;  // addresses where given, else names
  std::string munge_socket;              // empty: munge's default
};
ConfExcerpt read_conf(std::string_view text);

// slurm.conf and what it includes. Where there is none, the one that slurmd has fetched.
Result<SampleEndpoint> find_endpoint(const Settings& settings);

}  // namespace aliquot::slurm
