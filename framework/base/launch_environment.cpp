#include "base/launch_environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "base/slurm_lists.h"

namespace keyseat {
namespace {

constexpr int64_t kMostRanks = 1 << 20;
constexpr int kFirstPort = 20000, kPorts = 20000;  // of ports derived from a job's name

// Reads numbers out of variables and collects what is wrong with them.
class Reader {
 public:
  Reader(const EnvironmentLookup& lookup, Problems& problems)
      : lookup_(lookup), problems_(problems) {}

  std::optional<std::string> text(const std::string& name) const {
    auto value = lookup_(name);
    return value && !value->empty() ? value : std::nullopt;
  }

  std::optional<int64_t> number(const std::string& name, int64_t least, int64_t most) {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int64_t parsed = 0;
    const char* const end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, parsed);
    if (error == std::errc() && stop == end && parsed >= least && parsed <= most) return parsed;
    refuse(Code::kC3Value, fmt::format("the environment variable {} is \"{}\"", name, *value),
           fmt::format("it has to be a whole number from {} to {}", least, most));
    return std::nullopt;
  }

  // A number that has to be there because `because` is.
  int64_t required(const std::string& name, int64_t least, int64_t most, const char* because) {
    if (text(name)) return number(name, least, most).value_or(least);
    refuse(Code::kC3Value, fmt::format("the environment variable {} is not set", name),
           fmt::format("{} is, and both come from the launcher", because));
    return least;
  }

  void refuse(Code code, std::string what, std::string why) {
    problems_.push_back({code,
                         {},
                         std::move(what),
                         std::move(why),
                         "Start the job with keyseat launch, torchrun, srun or mpirun, or unset "
                         "their variables to run one process."});
  }

 private:
  const EnvironmentLookup& lookup_;
  Problems& problems_;
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// A port that all ranks derive from what only this job has.
int port_of(const std::string& job) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return kFirstPort + static_cast<int>(hash % kPorts);
}

void read_torchrun(Reader& reader, LaunchEnvironment& found) {
  found.launcher = reader.text("KEYSEAT_LAUNCH") ? "keyseat launch" : "torchrun";
  found.rank = reader.required("RANK", 0, kMostRanks, "WORLD_SIZE");
  found.world = reader.required("WORLD_SIZE", 1, kMostRanks, "RANK");
  const std::string host = reader.text("MASTER_ADDR").value_or("127.0.0.1");
  const bool local_given = reader.text("LOCAL_RANK") || reader.text("LOCAL_WORLD_SIZE");
  if (local_given || !is_loopback(host)) {
    found.local_rank = reader.required("LOCAL_RANK", 0, kMostRanks, "RANK");
    found.local_world = reader.required("LOCAL_WORLD_SIZE", 1, kMostRanks, "RANK");
  } else {  // all of them on this host
    found.local_rank = found.rank;
    found.local_world = found.world;
  }
  found.store_elsewhere = reader.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  found.attempt = reader.text("TORCHELASTIC_RESTART_COUNT").value_or("");
  if (const auto socket = reader.number("KEYSEAT_MASTER_SOCKET", 0, 1 << 20)) {
    found.master_socket = static_cast<int>(*socket);
  }
  if (found.world > 1) {
    found.master_port = static_cast<int>(reader.required("MASTER_PORT", 1, 65535, "RANK"));
  }
}

void read_open_mpi(Reader& reader, LaunchEnvironment& found) {
  const char* const because = "OMPI_COMM_WORLD_RANK";
  found.launcher = "mpirun";
  found.rank = reader.required(because, 0, kMostRanks, "OMPI_COMM_WORLD_SIZE");
  found.world = reader.required("OMPI_COMM_WORLD_SIZE", 1, kMostRanks, because);
  found.local_rank = reader.required("OMPI_COMM_WORLD_LOCAL_RANK", 0, kMostRanks, because);
  found.local_world = reader.required("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMostRanks, because);
  const auto job = reader.text("PMIX_NAMESPACE");
  if (const auto name = job ? job : reader.text("OMPI_MCA_ess_base_jobid")) {
    found.master_port = port_of(*name);
  }
}

void read_pmi(Reader& reader, LaunchEnvironment& found) {
  found.launcher = "mpirun";
  found.rank = reader.required("PMI_RANK", 0, kMostRanks, "PMI_SIZE");
  found.world = reader.required("PMI_SIZE", 1, kMostRanks, "PMI_RANK");
  found.local_rank = reader.required("MPI_LOCALRANKID", 0, kMostRanks, "PMI_RANK");
  found.local_world = reader.required("MPI_LOCALNRANKS", 1, kMostRanks, "PMI_RANK");
}

void read_slurm(Reader& reader, LaunchEnvironment& found) {
  found.launcher = "srun";
  const auto first = [&](const char* of_step, const char* of_job) {
    return reader.text(of_step) ? of_step : of_job;
  };
  const char* const because = "SLURM_PROCID";
  found.rank = reader.required("SLURM_PROCID", 0, kMostRanks, "SLURM_NTASKS");
  found.world =
      reader.required(first("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), 1, kMostRanks, because);
  found.local_rank = reader.required("SLURM_LOCALID", 0, kMostRanks, because);
  const char* const per_node = first("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  const int64_t node = reader.number("SLURM_NODEID", 0, kMostRanks).value_or(0);
  if (const auto tasks = reader.text(per_node)) {
    const auto counts = slurm_counts(*tasks);
    if (node < static_cast<int64_t>(counts.size())) {
      found.local_world = counts[static_cast<size_t>(node)];
    } else {
      reader.refuse(Code::kC3Value,
                    fmt::format("the environment variable {} is \"{}\"", per_node, *tasks),
                    fmt::format("it does not say how many tasks run on node {}", node));
    }
  } else {
    found.local_world = reader.number("SLURM_NTASKS_PER_NODE", 1, kMostRanks).value_or(found.world);
  }
  const char* const nodes = first("SLURM_STEP_NODELIST", "SLURM_NODELIST");
  if (const auto list = reader.text(nodes); list && found.local_world < found.world) {
    found.master_host = slurm_first_host(*list);
  }
  if (const auto job = reader.text("SLURM_JOB_ID")) {
    found.master_port = port_of(*job + "." + reader.text("SLURM_STEP_ID").value_or("0"));
  }
}

// Rules that hold whatever the launcher.
void check(Reader& reader, LaunchEnvironment& found) {
  const auto contradict = [&](std::string what, std::string why) {
    reader.refuse(Code::kC4Combination,
                  fmt::format("the variables of {} contradict each other: {}", found.launcher,
                              std::move(what)),
                  std::move(why));
  };
  if (found.rank >= found.world) {
    contradict(fmt::format("rank {} of {} ranks", found.rank, found.world),
               "ranks run from 0 to world - 1");
  }
  if (found.local_rank >= found.local_world) {
    contradict(
        fmt::format("local rank {} of {} ranks on this host", found.local_rank, found.local_world),
        "local ranks run from 0 to their number - 1");
  }
  if (found.local_world > found.world) {
    contradict(fmt::format("{} ranks on this host, {} in all", found.local_world, found.world),
               "a host cannot hold more than all ranks");
  } else if (found.world % found.local_world != 0) {
    contradict(
        fmt::format("{} ranks on this host do not divide {} ranks", found.local_world, found.world),
        "every host has to hold the same number of ranks");
  } else {
    found.hosts = found.world / found.local_world;
  }
  if (found.hosts == 1 && found.local_rank != found.rank) {
    contradict(fmt::format("rank {}, local rank {}, and all {} ranks on one host", found.rank,
                           found.local_rank, found.world),
               "on one host both are the same");
  }
}

void read_master(Reader& reader, LaunchEnvironment& found) {
  if (const auto host = reader.text("MASTER_ADDR")) found.master_host = *host;
  if (const auto port = reader.number("MASTER_PORT", 1, 65535)) {
    found.master_port = static_cast<int>(*port);
  }
  if (found.world == 1) return;
  const bool unknown_host = found.hosts > 1 && is_loopback(found.master_host);
  if (unknown_host || found.master_port == 0) {
    reader.refuse(Code::kC3Value,
                  fmt::format("the ranks do not know where to meet: {} is not set",
                              unknown_host ? "MASTER_ADDR" : "MASTER_PORT"),
                  fmt::format("{} does not say where rank 0 runs; set MASTER_ADDR and MASTER_PORT "
                              "to its host and a free port there, on every rank",
                              found.launcher));
  }
}

}  // namespace

LaunchEnvironment read_launch_environment(const EnvironmentLookup& lookup, Problems& problems) {
  LaunchEnvironment found;
  Reader reader(lookup, problems);
  const size_t before = problems.size();
  if (reader.text("RANK") || reader.text("WORLD_SIZE")) {
    read_torchrun(reader, found);
  } else if (reader.text("OMPI_COMM_WORLD_RANK") || reader.text("OMPI_COMM_WORLD_SIZE")) {
    read_open_mpi(reader, found);
  } else if (reader.text("PMI_RANK") || reader.text("PMI_SIZE")) {
    read_pmi(reader, found);
  } else if (reader.text("SLURM_PROCID")) {
    // A batch script has the variables of rank 0 too, but it is not a task of a job step.
    if (reader.text("SLURM_JOB_ID") && !reader.text("SLURM_STEP_ID")) {
      found.note = "inside a Slurm allocation, but not started by srun: this is one rank";
      return found;
    }
    read_slurm(reader, found);
  } else {
    return found;
  }
  if (problems.size() == before) check(reader, found);
  if (problems.size() == before) read_master(reader, found);
  return found;
}

LaunchEnvironment launch_environment() {
  Problems problems;
  LaunchEnvironment found = read_launch_environment(
      [](const std::string& name) -> std::optional<std::string> {
        const char* const value = std::getenv(name.c_str());
        return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
      },
      problems);
  if (!problems.empty()) throw Error(std::move(problems));
  return found;
}

}  // namespace keyseat
