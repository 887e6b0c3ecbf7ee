use super::*;

struct Toy(u32);
struct CToy(());
static TOYS: Table<Toy> = Table::new();
impl Noun for Toy {
    const TYPE: u64 = 100;
    type Handle = CToy;
    fn table() -> &'static Table<Self> {
        &TOYS
    }
}

struct Other(());
static OTHERS: Table<Other> = Table::new();
impl Noun for Other {
    const TYPE: u64 = 101;
    type Handle = CToy;
    fn table() -> &'static Table<Self> {
        &OTHERS
    }
}

fn kind<T>(result: Result<T>) -> Option<Kind> {
    result.err().map(|e| e.kind)
}

#[test]
fn a_handle_dies_once_and_a_call_keeps_its_object() {
    let handle = insert(Toy(7)).expect("room");
    let held = look_up::<Toy>(handle).expect("alive");
    leave::<Toy>(handle).expect("alive").gone();
    assert_eq!(held.0.object.0, 7);
    assert_eq!(kind(look_up::<Toy>(handle)), Some(Kind::InvalidHandle));
    assert_eq!(kind(leave::<Toy>(handle)), Some(Kind::InvalidHandle));
    assert_eq!(kind(look_up::<Toy>(std::ptr::null_mut())), Some(Kind::NullPointer));
}

#[test]
fn a_handle_that_could_not_go_is_back() {
    let handle = insert(Toy(1)).expect("room");
    {
        let leaving = leave::<Toy>(handle).expect("alive");
        assert_eq!(leaving.0, 1);
        assert_eq!(kind(look_up::<Toy>(handle)), Some(Kind::InvalidHandle), "on its way out");
    }
    assert!(look_up::<Toy>(handle).is_ok());
    assert!(TOYS.is_live(key(handle)));
}

#[test]
fn foreign_keys_and_pointers_are_refused() {
    let handle = insert(Toy(1)).expect("room");
    assert_eq!(kind(look_up::<Other>(handle)), Some(Kind::InvalidHandle), "of another type");
    for bit in 0..64 {
        let bent = std::ptr::without_provenance_mut::<CToy>(handle.addr() ^ (1 << bit));
        if !bent.is_null() && !TOYS.is_live(key(bent)) {
            assert_eq!(kind(look_up::<Toy>(bent)), Some(Kind::InvalidHandle), "bit {bit}");
        }
    }
    let local = 0_u64;
    let pointer = std::ptr::from_ref(&local).cast_mut().cast::<CToy>();
    assert_eq!(kind(look_up::<Toy>(pointer)), Some(Kind::InvalidHandle));
}

#[test]
fn a_used_up_index_is_never_used_again() {
    let table: &'static Table<Other> = Box::leak(Box::new(Table::new()));
    table.free.lock().expect("free").again.push_back((0, LAST_GENERATION));
    table.free.lock().expect("free").next = 1;
    let last = table.insert(Other(())).expect("room");
    assert_eq!(last & LAST_GENERATION, LAST_GENERATION);
    table.leave(last).expect("alive").gone();
    let next = table.insert(Other(())).expect("room");
    assert_eq!((next >> INDEX_SHIFT) & 0xf_ffff, 1, "another index");
}

#[test]
fn a_full_table_says_so() {
    let table: &'static Table<Other> = Box::leak(Box::new(Table::new()));
    table.free.lock().expect("free").next = 1 << 20;
    assert_eq!(kind(table.insert(Other(()))), Some(Kind::OutOfHostMemory));
}

/// Fills the list of what a call uses.
fn filler() -> *mut CToy {
    insert(Toy(3)).expect("room")
}

#[test]
fn a_panic_poisons_what_the_call_used_and_nothing_else() {
    let (used, unused) = (insert(Toy(1)).expect("room"), insert(Toy(2)).expect("room"));
    let status = crate::capi::entry::entry(Operation::Bind, || -> Result<()> {
        for _ in 0..20 {
            get::<Toy>(filler())?;
        }
        get::<Toy>(used)?;
        panic!("half done");
    });
    assert_eq!(status, crate::capi::status::GVMM_ERROR_INTERNAL);
    assert_eq!(kind(look_up::<Toy>(used)), Some(Kind::Poisoned));
    assert!(look_up::<Toy>(unused).is_ok());
    assert!(leave::<Toy>(used).expect("can be destroyed").object.is_poisoned());
}

#[test]
fn many_threads_make_and_end_handles() {
    std::thread::scope(|scope| {
        for n in 0..8 {
            scope.spawn(move || {
                for i in 0..2000 {
                    let handle = insert(Toy(n * 10_000 + i)).expect("room");
                    assert_eq!(look_up::<Toy>(handle).expect("alive").0.object.0, n * 10_000 + i);
                    leave::<Toy>(handle).expect("alive").gone();
                    assert!(look_up::<Toy>(handle).is_err());
                }
            });
        }
    });
}
