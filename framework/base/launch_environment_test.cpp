#include "base/launch_environment.h"

#include <doctest/doctest.h>

#include <map>

#include "base/slurm_lists.h"

namespace keyseat {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables, Problems& problems) {
  return read_launch_environment(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found != variables.end() ? std::optional<std::string>(found->second) : std::nullopt;
      },
      problems);
}

LaunchEnvironment good(const Variables& variables) {
  Problems problems;
  LaunchEnvironment found = read(variables, problems);
  CHECK_MESSAGE(problems.empty(), problems_text(problems));
  return found;
}

void bad(const Variables& variables, Code code, const std::string& text) {
  Problems problems;
  read(variables, problems);
  REQUIRE(!problems.empty());
  CHECK(problems[0].code == code);
  CHECK_MESSAGE(problems[0].text().find(text) != std::string::npos, problems[0].text());
}

const Variables kTorchrun{{"RANK", "5"},           {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "gpu1"}, {"MASTER_PORT", "29500"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST_CASE("launch environment: none is a world of one") {
  const LaunchEnvironment found = good({});
  CHECK(found.world == 1);
  CHECK(found.hosts == 1);
  CHECK(found.launcher.empty());
}

TEST_CASE("launch environment: torchrun") {
  const LaunchEnvironment found = good(kTorchrun);
  CHECK(found.rank == 5);
  CHECK(found.world == 8);
  CHECK(found.local_rank == 1);
  CHECK(found.local_world == 4);
  CHECK(found.hosts == 2);
  CHECK(found.master_host == "gpu1");
  CHECK(found.master_port == 29500);
  CHECK(!found.store_elsewhere);

  Variables agent = kTorchrun;
  agent["TORCHELASTIC_RUN_ID"] = "none";
  agent["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  agent["TORCHELASTIC_RESTART_COUNT"] = "2";
  CHECK(good(agent).launcher == "torchrun");
  CHECK(good(agent).store_elsewhere);
  CHECK(good(agent).attempt == "2");

  const LaunchEnvironment local =
      good({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1234"}});
  CHECK(local.local_rank == 1);
  CHECK(local.local_world == 2);
  CHECK(local.hosts == 1);
}

TEST_CASE("launch environment: Open MPI and MPICH") {
  const Variables ompi{{"OMPI_COMM_WORLD_RANK", "1"},
                       {"OMPI_COMM_WORLD_SIZE", "2"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                       {"PMIX_NAMESPACE", "3601399809"}};
  const LaunchEnvironment found = good(ompi);
  CHECK(found.launcher == "mpirun");
  CHECK(found.rank == 1);
  CHECK(found.hosts == 1);
  CHECK(found.master_host == "127.0.0.1");
  CHECK(found.master_port >= 20000);
  CHECK(found.master_port == good(with(ompi, "OMPI_COMM_WORLD_RANK", "1")).master_port);
  CHECK(good(with(ompi, "MASTER_PORT", "77")).master_port == 77);
  bad(with(without(ompi, "PMIX_NAMESPACE"), "X", ""), Code::kC3Value, "MASTER_PORT");

  Variables two_hosts = with(with(ompi, "OMPI_COMM_WORLD_SIZE", "4"), "OMPI_COMM_WORLD_RANK", "3");
  bad(two_hosts, Code::kC3Value, "MASTER_ADDR");
  CHECK(good(with(two_hosts, "MASTER_ADDR", "node0")).hosts == 2);

  const LaunchEnvironment pmi = good({{"PMI_RANK", "2"},
                                      {"PMI_SIZE", "3"},
                                      {"MPI_LOCALRANKID", "2"},
                                      {"MPI_LOCALNRANKS", "3"},
                                      {"MASTER_PORT", "4000"}});
  CHECK(pmi.rank == 2);
  CHECK(pmi.local_world == 3);
}

TEST_CASE("launch environment: srun, and a batch script that is not srun") {
  const Variables srun{{"SLURM_PROCID", "5"},
                       {"SLURM_NTASKS", "6"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_JOB_ID", "812"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
                       {"SLURM_STEP_NODELIST", "gpu[07-09]"}};
  const LaunchEnvironment found = good(srun);
  CHECK(found.launcher == "srun");
  CHECK(found.rank == 5);
  CHECK(found.local_world == 2);
  CHECK(found.hosts == 3);
  CHECK(found.master_host == "gpu07");
  CHECK(found.master_port == good(with(srun, "SLURM_NODEID", "0")).master_port);

  const LaunchEnvironment few = good({{"SLURM_PROCID", "1"},
                                      {"SLURM_NTASKS", "2"},
                                      {"SLURM_LOCALID", "1"},
                                      {"MASTER_PORT", "4000"}});
  CHECK(few.world == 2);
  CHECK(few.hosts == 1);

  const LaunchEnvironment batch = good(without(srun, "SLURM_STEP_ID"));
  CHECK(batch.world == 1);
  CHECK(!batch.note.empty());

  // torchrun inside a job step: its variables are the ones that count.
  Variables both = kTorchrun;
  both.insert(srun.begin(), srun.end());
  CHECK(good(both).world == 8);
}

TEST_CASE("launch environment: missing and contradicting variables are refused") {
  bad(without(kTorchrun, "WORLD_SIZE"), Code::kC3Value, "WORLD_SIZE is not set");
  bad(without(kTorchrun, "RANK"), Code::kC3Value, "RANK is not set");
  bad(without(kTorchrun, "LOCAL_RANK"), Code::kC3Value, "LOCAL_RANK is not set");
  bad(without(kTorchrun, "MASTER_PORT"), Code::kC3Value, "MASTER_PORT");
  bad(with(kTorchrun, "RANK", "8"), Code::kC4Combination, "rank 8 of 8");
  bad(with(kTorchrun, "RANK", "-1"), Code::kC3Value, "\"-1\"");
  bad(with(kTorchrun, "RANK", "1x"), Code::kC3Value, "\"1x\"");
  bad(with(kTorchrun, "LOCAL_RANK", "4"), Code::kC4Combination, "local rank 4 of 4");
  bad(with(kTorchrun, "LOCAL_WORLD_SIZE", "3"), Code::kC4Combination, "do not divide");
  bad(with(kTorchrun, "LOCAL_WORLD_SIZE", "16"), Code::kC4Combination, "16 ranks on this host");
  bad(with(with(kTorchrun, "LOCAL_WORLD_SIZE", "8"), "LOCAL_RANK", "2"), Code::kC4Combination,
      "on one host");
  bad(with(kTorchrun, "MASTER_PORT", "70000"), Code::kC3Value, "70000");
  bad({{"SLURM_PROCID", "1"},
       {"SLURM_NTASKS", "2"},
       {"SLURM_LOCALID", "1"},
       {"SLURM_TASKS_PER_NODE", "2(x"}},
      Code::kC3Value, "2(x");
}

TEST_CASE("launch environment: Slurm's notations") {
  CHECK(slurm_counts("2(x3),1") == std::vector<int64_t>{2, 2, 2, 1});
  CHECK(slurm_counts("4") == std::vector<int64_t>{4});
  CHECK(slurm_counts("a").empty());
  CHECK(slurm_counts("2(x").empty());
  CHECK(slurm_counts("2(x9999999999)").empty());
  CHECK(slurm_first_host("gpu[03-05,09],login") == "gpu03");
  CHECK(slurm_first_host("gpu1,gpu2") == "gpu1");
  CHECK(slurm_first_host("node7") == "node7");
}

}  // namespace
}  // namespace keyseat
