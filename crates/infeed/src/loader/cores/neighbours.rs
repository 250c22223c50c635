//! This user's processes that tune their workers on the same cores.
//!
//! Each process registers the cores on which it may run. If that is impossible, only the
//! environment gives the number of ranks.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use infeed_raw::machine::{allowed_cores, cores_from_list};

use crate::loader::register::{ProcessRegister, RegisterEntry};

/// The entry of this process, shared by its loaders.
static OWN: Mutex<Weak<Neighbours>> = Mutex::new(Weak::new());

/// This process in the register, until the last reference is dropped.
#[derive(Debug)]
pub(super) struct Neighbours {
    register: ProcessRegister,
    entry: RegisterEntry,
    cores: Vec<u32>,
}

impl Neighbours {
    /// Returns this process's entry; creates it if needed.
    pub(super) fn join() -> Option<Arc<Neighbours>> {
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = own.upgrade().filter(|here| !here.entry.is_forked()) {
            return Some(here);
        }
        let register = ProcessRegister::of("cores")?;
        let here = Arc::new(Neighbours::join_in(register, allowed_cores()?)?);
        *own = Arc::downgrade(&here);
        Some(here)
    }

    fn join_in(register: ProcessRegister, cores: Vec<u32>) -> Option<Neighbours> {
        let list: Vec<String> = cores.iter().map(u32::to_string).collect();
        let entry = register.enter(&list.join(","))?;
        Some(Neighbours {
            register,
            entry,
            cores,
        })
    }

    /// Returns this process's share of its cores, if all processes that may run on a core share it
    /// equally. Also returns the number of these processes, including this one.
    ///
    /// # Cost
    ///
    /// A few system calls per process; call from time to time, not per batch.
    pub(super) fn share(&self) -> (f64, usize) {
        let others = self.others();
        (share(&self.cores, &others), 1 + others.len())
    }

    /// Cores of each other process that shares some with this one.
    fn others(&self) -> Vec<Vec<u32>> {
        let entries = self.register.others(|path| path == self.entry.path());
        let lists = entries.iter().filter_map(|list| cores_from_list(list));
        lists
            .filter(|cores| cores.iter().any(|core| self.cores.contains(core)))
            .collect()
    }
}

/// Returns the remaining share of `own` cores, between 0 and 1, if `others` may run on some of
/// them.
fn share(own: &[u32], others: &[Vec<u32>]) -> f64 {
    if own.is_empty() {
        return 1.0;
    }
    let part = |core: &u32| {
        let also = others.iter().filter(|cores| cores.contains(core)).count();
        1.0 / (1 + also) as f64
    };
    own.iter().map(part).sum::<f64>() / own.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_the_cores_they_may_run_on() {
        let all = || (0..8).collect::<Vec<u32>>();

        assert_eq!(share(&all(), &[]), 1.0);
        assert_eq!(share(&all(), &[all(), all(), all()]), 0.25);
        assert_eq!(share(&[0, 1], &[vec![2, 3], vec![4, 5]]), 1.0);
        assert_eq!(share(&[0, 1], &[vec![1, 2]]), 0.75);
        assert_eq!(share(&[], &[all()]), 1.0);
    }

    #[test]
    fn processes_see_each_other_while_they_hold_their_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let register = ProcessRegister::at(folder.path());
        let join = |cores: &[u32]| {
            let joined = Neighbours::join_in(register.clone(), cores.to_vec());
            joined.expect("files can be locked here")
        };
        let first = join(&[0, 1]);
        assert_eq!(first.share(), (1.0, 1));

        let second = join(&[0, 1]);
        let elsewhere = join(&[2, 3]);
        assert_eq!(first.share(), (0.5, 2));
        assert_eq!(elsewhere.share(), (1.0, 1));

        drop(second);
        assert_eq!(first.share(), (1.0, 1));
    }

    #[test]
    fn a_process_without_cores_is_no_neighbour() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let register = ProcessRegister::at(folder.path());
        let here = Neighbours::join_in(register.clone(), vec![0]).expect("files can be locked");
        let strange = register
            .enter("0-99999999999")
            .expect("files can be locked");

        assert_eq!(here.share(), (1.0, 1));
        drop(strange);
    }
}
