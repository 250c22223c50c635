//! Processes of this user that tune their workers on the same cores.
//!
//! Each enters which cores it may run on. Where that cannot be, nobody is seen, and the environment
//! alone says how many ranks there are.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use infeed_raw::machine::{allowed_cores, cores_from_list};

use crate::loader::register::{Entry, Register};

/// The entry of this process, shared by its loaders.
static OWN: Mutex<Weak<Neighbours>> = Mutex::new(Weak::new());

/// This process among its neighbours, until the last share is dropped.
#[derive(Debug)]
pub(super) struct Neighbours {
    register: Register,
    entry: Entry,
    cores: Vec<u32>,
}

impl Neighbours {
    /// This process's entry, made if it has none.
    pub(super) fn join() -> Option<Arc<Neighbours>> {
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = own.upgrade().filter(|here| !here.entry.is_forked()) {
            return Some(here);
        }
        let register = Register::of("cores")?;
        let here = Arc::new(Neighbours::join_in(register, allowed_cores()?)?);
        *own = Arc::downgrade(&here);
        Some(here)
    }

    fn join_in(register: Register, cores: Vec<u32>) -> Option<Neighbours> {
        let list: Vec<String> = cores.iter().map(u32::to_string).collect();
        let entry = register.enter(&list.join(","))?;
        Some(Neighbours {
            register,
            entry,
            cores,
        })
    }

    /// The part of this process's cores that is left to it where each core is shared equally by
    /// the processes that may run on it; and how many those are, this one too.
    ///
    /// # Cost
    ///
    /// A few system calls a process; ask now and then, not per batch.
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

/// How much of `own` is left, between 0 and 1, when others may run on some of it.
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
    fn cores_are_shared_by_those_who_may_run_on_them() {
        let all = || (0..8).collect::<Vec<u32>>();

        assert_eq!(share(&all(), &[]), 1.0);
        assert_eq!(share(&all(), &[all(), all(), all()]), 0.25);
        assert_eq!(share(&[0, 1], &[vec![2, 3], vec![4, 5]]), 1.0);
        assert_eq!(share(&[0, 1], &[vec![1, 2]]), 0.75);
        assert_eq!(share(&[], &[all()]), 1.0);
    }

    #[test]
    fn processes_see_each_other_for_as_long_as_they_hold_their_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let register = Register::at(folder.path());
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
    fn who_says_no_cores_is_no_neighbour() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let register = Register::at(folder.path());
        let here = Neighbours::join_in(register.clone(), vec![0]).expect("files can be locked");
        let strange = register
            .enter("0-99999999999")
            .expect("files can be locked");

        assert_eq!(here.share(), (1.0, 1));
        drop(strange);
    }
}
