// The viewing commands with names of their own, for multicall.hpp's table.
#pragma once

namespace aliquot::cli {

int run_squeue(int argc, char** argv);
int run_sinfo(int argc, char** argv);
int run_scontrol(int argc, char** argv);
int run_sacct(int argc, char** argv);
int run_seff(int argc, char** argv);

}  // namespace aliquot::cli
