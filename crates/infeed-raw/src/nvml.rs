//! How busy an NVIDIA card is, as `nvidia-smi` tells it: through the management library, which comes
//! with the driver and is loaded when it is first asked for. Where it is not, nothing is told.
//!
//! Every `unsafe` here is a call through the table below. Its functions have these signatures in every
//! version of the library that has these names; they write to the one place that is handed over,
//! keep nothing of it, and are safe to call from any thread. Handles are pointers that the library
//! alone follows, valid until the process ends, since it is initialised once and never shut down.
//!
//! Source: `nvml.h` of CUDA 11.0, whose functions every later library still has under these names.

use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::sync::OnceLock;

/// `NVML_SUCCESS`.
const SUCCESS: c_uint = 0;

/// How busy a card was during the last sixth of a second to second, by its own counting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Utilisation {
    /// Share of the time in which some kernel ran, however small, 0 to 1.
    pub busy: f64,
    /// Share of the time in which its memory was read or written, 0 to 1.
    pub memory: f64,
}

/// A card that the library knows.
#[derive(Clone, Copy)]
pub struct Card {
    table: &'static Table,
    handle: usize,
}

/// `nvmlUtilization_t`: two shares in percent.
#[repr(C)]
#[derive(Default)]
struct Rates {
    kernels: c_uint,
    memory: c_uint,
}

/// Functions of the library. Each returns a code, 0 for success.
struct Table {
    init: unsafe extern "C" fn() -> c_uint,
    by_bus: unsafe extern "C" fn(*const c_char, *mut usize) -> c_uint,
    rates: unsafe extern "C" fn(usize, *mut Rates) -> c_uint,
}

impl Card {
    /// The card at a place on the bus, such as `0000:3b:00.0`; None without the library, or if it does
    /// not know the card or this process may not ask.
    pub fn at(bus: &str) -> Option<Card> {
        static TABLE: OnceLock<Option<Table>> = OnceLock::new();
        let table = TABLE.get_or_init(Table::load).as_ref()?;
        Card::of(table, bus)
    }

    fn of(table: &'static Table, bus: &str) -> Option<Card> {
        let bus = CString::new(bus).ok()?;
        let mut handle = 0;
        // SAFETY: as the head says; the string has an end, and `handle` is a pointer's size.
        let code = unsafe { (table.by_bus)(bus.as_ptr(), &mut handle) };
        (code == SUCCESS && handle != 0).then_some(Card { table, handle })
    }

    /// How busy it is; None if the card does not count that, as parts of a card do not.
    pub fn utilisation(&self) -> Option<Utilisation> {
        let mut rates = Rates::default();
        // SAFETY: as the head says; the handle is the library's own.
        let code = unsafe { (self.table.rates)(self.handle, &mut rates) };
        let share = |percent: c_uint| f64::from(percent.min(100)) / 100.0;
        (code == SUCCESS).then(|| Utilisation {
            busy: share(rates.kernels),
            memory: share(rates.memory),
        })
    }
}

impl std::fmt::Debug for Card {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Card").finish_non_exhaustive()
    }
}

impl Table {
    #[cfg(unix)]
    fn load() -> Option<Table> {
        // The name that drivers install; the one without a number is there for those who build.
        // SAFETY: a string with an end. Loading runs the library's initialisers; it is the driver's
        // library under the name that the system knows it by.
        let library = unsafe {
            libc::dlopen(
                c"libnvidia-ml.so.1".as_ptr(),
                libc::RTLD_NOW | libc::RTLD_LOCAL,
            )
        };
        if library.is_null() {
            return None;
        }
        let function = |name: &CStr| -> Option<*mut c_void> {
            // SAFETY: an open library, which stays open, and a string with an end.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        let (init, by_bus, rates) = (
            function(c"nvmlInit_v2")?,
            function(c"nvmlDeviceGetHandleByPciBusId_v2")?,
            function(c"nvmlDeviceGetUtilizationRates")?,
        );
        // SAFETY: addresses of functions with these signatures, as the head says. A data pointer and a
        // function pointer are of one size here.
        let table = unsafe {
            Table {
                init: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_uint>(init),
                by_bus: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const c_char, *mut usize) -> c_uint,
                >(by_bus),
                rates: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(usize, *mut Rates) -> c_uint,
                >(rates),
            }
        };
        table.started()
    }

    #[cfg(not(unix))]
    fn load() -> Option<Table> {
        None
    }

    /// The table, if the library is ready to be asked.
    fn started(self) -> Option<Table> {
        // SAFETY: as the head says; it takes nothing.
        let code = unsafe { (self.init)() };
        (code == SUCCESS).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library that knows one card, which is 97 % busy, and another that does not count.
    static FAKE: Table = Table {
        init: started,
        by_bus,
        rates,
    };

    extern "C" fn started() -> c_uint {
        SUCCESS
    }

    extern "C" fn refused() -> c_uint {
        999
    }

    unsafe extern "C" fn by_bus(bus: *const c_char, handle: *mut usize) -> c_uint {
        // SAFETY: the caller hands over a string with an end and a place for the handle.
        let (bus, handle) = unsafe { (CStr::from_ptr(bus), &mut *handle) };
        *handle = match bus.to_bytes() {
            b"0000:3b:00.0" => 1,
            b"0000:af:00.0" => 2,
            _ => return 6,
        };
        SUCCESS
    }

    unsafe extern "C" fn rates(handle: usize, rates: *mut Rates) -> c_uint {
        if handle != 1 {
            return 3;
        }
        // SAFETY: the caller hands over a place for two numbers.
        let rates = unsafe { &mut *rates };
        (rates.kernels, rates.memory) = (97, 140);
        SUCCESS
    }

    #[test]
    fn a_card_is_found_by_its_place_on_the_bus_and_tells_shares() {
        let card = Card::of(&FAKE, "0000:3b:00.0").expect("it is there");

        let found = card.utilisation().expect("it counts");

        assert_eq!(found.busy, 0.97);
        assert_eq!(found.memory, 1.0, "a share is no more than all");
    }

    #[test]
    fn what_is_not_known_is_none_and_no_error() {
        assert!(Card::of(&FAKE, "0000:00:00.0").is_none());
        assert!(Card::of(&FAKE, "a\0b").is_none());
        let silent = Card::of(&FAKE, "0000:af:00.0").expect("it is there");
        assert_eq!(silent.utilisation(), None);
    }

    #[test]
    fn a_library_that_does_not_start_is_as_good_as_none() {
        let table = Table {
            init: refused,
            by_bus,
            rates,
        };

        assert!(table.started().is_none());
    }

    #[test]
    fn a_card_that_no_machine_has_is_not_found_with_or_without_the_library() {
        assert!(Card::at("ffff:ff:1f.7").is_none());
    }
}
