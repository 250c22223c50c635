//! Cores that a loader may use: this process's share, next to other ranks.

mod neighbours;

use std::sync::Arc;

use infeed_raw::machine::{allowed_cores, machine_cores, usable_cores};

use neighbours::Neighbours;

/// Variables in which launchers give the number of ranks on this machine: torchrun; Open MPI;
/// MPICH, Intel MPI and other users of their launcher; MVAPICH2; Cray.
const LOCAL_RANKS: [&str; 5] = [
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "PALS_LOCAL_SIZE",
];

/// Variables in which SLURM gives the tasks per node: `4`, or `4(x2),3` for three nodes. A batch
/// script has them before any task starts, so they count only if there are several ranks.
const SLURM_TASKS: [&str; 2] = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
const SLURM_NODE: &str = "SLURM_NODEID";

/// Upper bound for the number of ranks on one machine.
const MAX_RANKS: usize = 4096;

/// Cores of this process, and the processes that share them.
#[derive(Debug)]
pub(super) struct SharedCores {
    /// Number of cores that affinity and quota allow.
    usable: usize,
    /// Number of ranks on this machine that share these cores, from the environment.
    ranks: usize,
    neighbours: Option<Arc<Neighbours>>,
}

impl SharedCores {
    /// Leaves this process's share to the neighbours.
    pub(super) fn leave(&mut self) {
        self.neighbours = None;
    }

    /// Registers this process with its neighbours.
    pub(super) fn join(world_size: u64) -> SharedCores {
        let allowed = allowed_cores().map_or(0, |cores| cores.len());
        SharedCores {
            usable: usable_cores(),
            ranks: sharing(ranks_here(world_size), allowed, machine_cores()),
            neighbours: Neighbours::join(),
        }
    }

    /// Returns the number of cores that this loader may use now, at least 1.
    ///
    /// # Cost
    ///
    /// A few system calls per process that shares the cores; not for every batch.
    pub(super) fn now(&self) -> usize {
        let (share, seen) = match &self.neighbours {
            Some(neighbours) => neighbours.share(),
            None => (1.0, 1),
        };
        share_of(self.usable, share, seen, self.ranks)
    }
}

/// Returns the number of cores for a loader without tuning, in a run of `world_size` ranks.
pub(super) fn cores_for(world_size: u64) -> usize {
    SharedCores::join(world_size).now()
}

/// Returns the number of this run's ranks on this machine, from the environment; 1 if unknown.
pub(super) fn ranks_here(world_size: u64) -> usize {
    ranks_from(world_size, |name| std::env::var(name).ok())
}

fn ranks_from(world_size: u64, env: impl Fn(&str) -> Option<String>) -> usize {
    let number = |name: &&str| env(name)?.trim().parse::<usize>().ok();
    let mut ranks = LOCAL_RANKS.iter().find_map(number);
    if ranks.is_none() && world_size > 1 {
        let tasks = SLURM_TASKS.iter().find_map(|name| env(name));
        let node = number(&SLURM_NODE).unwrap_or(0);
        ranks = tasks.and_then(|tasks| slurm_tasks(&tasks, node));
    }
    let ranks = ranks.unwrap_or(1).clamp(1, MAX_RANKS);
    // Ignore larger values that the parent's launcher left in the environment.
    match usize::try_from(world_size) {
        Ok(world) if world > 1 => ranks.min(world),
        _ => ranks,
    }
}

/// Parses the tasks of a node from `4(x2),3`.
fn slurm_tasks(text: &str, node: usize) -> Option<usize> {
    let mut nodes: usize = 0;
    for part in text.trim().split(',') {
        let (tasks, times) = match part.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        nodes = nodes.checked_add(times)?;
        if node < nodes {
            return tasks.parse().ok();
        }
    }
    None
}

/// Returns how many of `ranks` share this process's cores: one if the launcher seems to have bound
/// each rank to its own cores, because together they fit the machine.
fn sharing(ranks: usize, allowed: usize, machine: usize) -> usize {
    let bound = allowed > 0 && allowed.saturating_mul(ranks) <= machine;
    if bound { 1 } else { ranks }
}

/// Returns the share of `usable` cores. If fewer processes are visible than the environment says,
/// the environment limits the share.
fn share_of(usable: usize, share: f64, seen: usize, ranks: usize) -> usize {
    let share = if seen < ranks {
        share.min(1.0 / ranks as f64)
    } else {
        share
    };
    ((usable as f64 * share).round() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(world_size: u64, variables: &[(&str, &str)]) -> usize {
        ranks_from(world_size, |name| {
            let found = variables.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn launcher_variables_give_the_number_of_local_ranks() {
        assert_eq!(ranks(1, &[]), 1);
        assert_eq!(ranks(16, &[("LOCAL_WORLD_SIZE", "8")]), 8);
        assert_eq!(ranks(1, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "4")]), 4);
        assert_eq!(ranks(2, &[("MPI_LOCALNRANKS", "4")]), 2);
        assert_eq!(ranks(8, &[("LOCAL_WORLD_SIZE", "many")]), 1);
        assert_eq!(ranks(8, &[("LOCAL_WORLD_SIZE", "0")]), 1);
    }

    #[test]
    fn slurm_variables_count_per_node_and_only_with_several_ranks() {
        let on = |node| [("SLURM_TASKS_PER_NODE", "4(x2),3"), ("SLURM_NODEID", node)];

        assert_eq!(ranks(11, &on("0")), 4);
        assert_eq!(ranks(11, &on("2")), 3);
        assert_eq!(ranks(11, &on("9")), 1);
        assert_eq!(ranks(1, &on("0")), 1);
        for wrong in ["", "4(x", "4(x99999999999999999999)", ",,"] {
            assert_eq!(
                ranks(11, &[("SLURM_TASKS_PER_NODE", wrong)]),
                1,
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn ranks_bound_to_separate_cores_share_none() {
        assert_eq!(sharing(8, 128, 128), 8);
        assert_eq!(sharing(8, 16, 128), 1);
        assert_eq!(sharing(1, 2, 2), 1);
        assert_eq!(
            sharing(4, 0, 64),
            4,
            "what is not known is taken to be shared"
        );
    }

    #[test]
    fn the_environment_limits_the_share_if_it_gives_more_ranks() {
        assert_eq!(share_of(16, 1.0, 1, 1), 16);
        assert_eq!(share_of(16, 0.25, 4, 1), 4);
        assert_eq!(share_of(16, 1.0, 1, 8), 2, "the others have not opened yet");
        assert_eq!(share_of(16, 0.125, 8, 8), 2);
        assert_eq!(share_of(2, 0.25, 4, 4), 1);
    }
}
