// What our daemons read of Slurm's own files.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "slurm/samples.hpp"
#include "slurm/site.hpp"
#include "slurm/site_settings.hpp"

namespace aliquot::slurm {

// The keys of slurm.conf.
Result<Site> read_node_conf(const SiteSettings& settings);

// Whether all that a job's tasks start is in a control group whose name says which job it is.
// `read` gives cgroup.conf, which lies beside.
bool makes_groups(const Site& slurm_conf, const ReadFile& read);

std::vector<std::string> controllers(const Site& site);  // addresses where given, else names
std::string munge_socket(const Site& site);  // AuthInfo=socket=…; empty: munge's default

// Where samples go: to every SlurmctldHost, unless the settings name a host.
Result<SampleEndpoint> find_endpoint(const SiteSettings& settings);

}  // namespace aliquot::slurm
