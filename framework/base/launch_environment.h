// What the launcher's environment says: which rank this process is, of how many, on how many hosts,
// and where they meet. Torch-free, so that mistakes show before anything is loaded.
//
// Read from the first of these that is there:
//   keyseat launch, torchrun   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
//   mpirun (Open MPI)          OMPI_COMM_WORLD_{RANK,SIZE,LOCAL_RANK,LOCAL_SIZE}
//   mpirun (MPICH, Intel)      PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS
//   srun                       SLURM_PROCID SLURM_NTASKS SLURM_LOCALID SLURM_TASKS_PER_NODE ...
// With none of them the world is this one process. MASTER_ADDR and MASTER_PORT are taken wherever
// they are set; otherwise they follow from the job, where that is possible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "keyseat/export.h"
#include "keyseat/status.h"

namespace keyseat {

struct LaunchEnvironment {
  int64_t rank = 0, world = 1, local_rank = 0, local_world = 1;
  int64_t hosts = 1;
  std::string master_host = "127.0.0.1";  // of rank 0
  int master_port = 0;                    // 0: none given (a world of one)
  // A bound and listening socket of master_port that rank 0 inherited; -1: rank 0 binds itself.
  int master_socket = -1;
  bool store_elsewhere = false;  // the launcher serves the store itself (torchrun)
  std::string attempt;           // tells restarts that share a store apart (torchrun)
  std::string launcher;          // "keyseat launch", "torchrun", "mpirun", "srun"; empty: none
  std::string note;              // what a reader may wonder about; empty: nothing
};

// Value of a variable, or nothing where it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Variables that are missing, are no numbers, or contradict each other are appended to `problems`
// (C3, C4); then the result means nothing. Pure: a function of the variables only.
KEYSEAT_API LaunchEnvironment read_launch_environment(const EnvironmentLookup& lookup,
                                                      Problems& problems);

// The same of this process's variables. Throws Error.
KEYSEAT_API LaunchEnvironment launch_environment();

}  // namespace keyseat
