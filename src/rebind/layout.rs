//! A layout in force: the addresses that a generation's command buffer was recorded with.

use super::buffers::Buffer;
use super::copies::{At, Copies};
use super::ids::Ids;
use super::overlap::Overlap;
use super::plan::{Area, Plan};
use super::shadow::{Arena, Region};
use super::slot::{Action, Slot};
use crate::driver::{Access, CopySlice, Graph, Stream, Way};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange};
use crate::vm::{Allocation, Block, BlockId, Device, Owner, RemapEntry, Reservation, Route};
use std::sync::Arc;

/// Where a slot is served: all that a step needs to know of one that changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) action: Action,
    /// Of a copied slot, in [`Copies`] in and out.
    copy_in: At,
    copy_out: At,
    pub(super) address: DevicePtr,
    /// The slot's.
    pub(super) bytes: ByteSize,
}

const _: () = assert!(size_of::<Place>() == 32, "a step reads one for each slot that changed");

/// Where a mapped slot's window is.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// In the reservation.
    offset: ByteSize,
    size: ByteSize,
}

/// Addresses, and the memory behind those that are ours.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) places: Vec<Place>,
    /// One for each slot, which counts where that is mapped.
    windows: Vec<Window>,
    /// What each window holds; the mapping keeps the block.
    pub(super) held: Vec<Option<BlockId>>,
    pub(super) copies_in: Copies,
    pub(super) copies_out: Copies,
    /// The caller's graph that has those copies which were recorded.
    pub(super) graph: Option<Graph>,
    /// Whether those copies can be made in any order.
    overlap: Overlap,
    reservation: Option<Arc<Reservation>>,
    shadows: Option<Region>,
    /// Where slots with a permanent address are: the binding's, kept until the last step has passed.
    pub(super) permanent: Option<Arc<Allocation>>,
    /// True once a step may use what the windows hold.
    pub(super) used: bool,
}

/// What remains of a layout until its last step has passed.
#[derive(Debug)]
pub(super) struct Remains {
    _reservation: Option<Arc<Reservation>>,
    _shadows: Option<Region>,
    _permanent: Option<Arc<Allocation>>,
    _routes: [Option<Route>; 2],
    _token: Arc<()>,
}

impl Layout {
    /// Reserves and allocates what `plan` asks for; nothing is mapped yet.
    pub(super) fn build(
        device: &Device,
        slots: &[Slot],
        plan: &Plan,
        windows: &[Area],
        access: &[Access],
    ) -> Result<Self> {
        let reservation = reserve(device, plan, access)?;
        let shadows = allocate(device, plan, access)?;
        let mut layout = Self {
            places: Vec::with_capacity(slots.len()),
            windows: Vec::with_capacity(slots.len()),
            held: vec![None; slots.len()],
            copies_in: Copies::new(Way::In),
            copies_out: Copies::new(Way::Out),
            graph: None,
            overlap: Overlap::default(),
            reservation,
            shadows,
            permanent: None,
            used: false,
        };
        for (i, slot) in slots.iter().enumerate() {
            let place = layout.place(slot, plan, i);
            layout.places.push(place);
            layout.windows.push(Window { offset: plan.offsets[i], size: windows[i].size });
        }
        layout.copies_in.seal(device)?;
        layout.copies_out.seal(device)?;
        let ours = layout.shadows.as_ref().and_then(Region::range);
        let brought = slots.iter().filter(|slot| slot.brings_shadow());
        let brought = brought.filter_map(|slot| DeviceRange::new(slot.shadow_address, slot.bytes));
        let shadows = brought.chain(ours).collect();
        layout.overlap = Overlap::new(slots.len(), layout.copies_out.slices.len(), shadows);
        Ok(layout)
    }

    fn place(&mut self, slot: &Slot, plan: &Plan, i: usize) -> Place {
        let (action, offset) = (plan.actions[i], plan.offsets[i]);
        let base = match action {
            Action::MAP => self.reservation.as_ref().map(|r| r.range().start()),
            Action::COPY => self.shadows.as_ref().map(Region::address),
            _ => None,
        };
        let ours = base.and_then(|base| base.checked_add(offset)).unwrap_or_default();
        let address = if slot.brings_shadow() { slot.shadow_address } else { ours };
        let (copies, bytes) = (action == Action::COPY, slot.bytes);
        let push = |copies: &mut Copies, wanted| {
            if wanted { copies.push(address, bytes.get()) } else { At::NONE }
        };
        let copy_in = push(&mut self.copies_in, copies && slot.direction.reads());
        let copy_out = push(&mut self.copies_out, copies && slot.direction.writes());
        Place { action, copy_in, copy_out, address, bytes }
    }

    /// Says where a slot's buffer is: that is its address, or where its shadow is copied from and to.
    pub(super) fn point(&mut self, i: usize, buffer: &Buffer) {
        self.point_one(i, buffer);
    }

    /// The same; of a slot that is copied, gives how many bytes are, which is none where the buffer is its own shadow, and
    /// whether the buffer is written.
    #[inline]
    fn point_one(&mut self, i: usize, buffer: &Buffer) -> Option<(ByteSize, bool)> {
        let place = &mut self.places[i];
        if place.action == Action::BAKE || place.action == Action::PATCH {
            place.address = buffer.address;
        }
        let (copy_in, copy_out) = (place.copy_in.get(), place.copy_out.get());
        if copy_in.is_none() && copy_out.is_none() {
            return None;
        }
        let (ours, theirs) = (place.address, buffer.address);
        let copied = if ours == theirs { ByteSize::ZERO } else { place.bytes };
        let bytes = copied.get();
        if let Some(at) = copy_in {
            self.copies_in.set(at, CopySlice { dst: ours, src: theirs, bytes });
        }
        if let Some(at) = copy_out {
            self.copies_out.set(at, CopySlice { dst: theirs, src: ours, bytes });
        }
        Some((copied, copy_out.is_some()))
    }

    /// Points the copies of `slots` at their buffers, and checks that this step's copies can be made in any order.
    ///
    /// # Errors
    /// With the slot to blame: `Overlap`, `OutOfRange`; then some may point elsewhere already.
    pub(super) fn point_copies(
        &mut self,
        slots: impl Iterator<Item = (usize, u32)>,
        buffer: impl Fn(usize) -> Buffer,
        ids: &mut Ids,
    ) -> Result<()> {
        self.overlap.start();
        for (i, known) in slots {
            let buffer = buffer(i);
            let Some((bytes, written)) = self.point_one(i, &buffer) else { continue };
            if !self.overlap.look(i as u32, buffer.address, bytes, written, ids.range(known)) {
                return Err(WRAPS.at(buffer.address, bytes).entry(i as u64));
            }
        }
        self.check_copies()
    }

    fn check_copies(&mut self) -> Result<()> {
        if let Err(slot) = self.overlap.check() {
            let slice = self.places[slot as usize].copy_out.get().map(|at| self.copies_out.slices[at]);
            let at = slice.map_or(OVERLAP, |slice| OVERLAP.at(slice.dst, ByteSize(slice.bytes)));
            return Err(at.entry(u64::from(slot)));
        }
        if self.overlap.is_mixed() {
            Device::check_slices(&self.copies_in.slices).map_err(|e| self.blame(e, |place| place.copy_in))?;
            Device::check_slices(&self.copies_out.slices)
                .map_err(|e| self.blame(e, |place| place.copy_out))?;
        }
        Ok(())
    }

    /// Has this step's copies made: points those that the graph has, and enqueues those that go in and are not there.
    /// Enqueueing comes last, since it alone cannot be taken back.
    pub(super) fn copy_in(&mut self, stream: Stream) -> Result<()> {
        let aimed = Copies::aim([&mut self.copies_in, &mut self.copies_out], self.graph);
        aimed.map_err(|(i, e)| self.blame(e, |place| if i == 0 { place.copy_in } else { place.copy_out }))?;
        self.copies_in.launch(stream).map_err(|e| self.blame(e, |place| place.copy_in))
    }

    /// Enqueues the copies that go out, unless the graph makes them.
    pub(super) fn copy_out(&self, stream: Stream) -> Result<()> {
        self.copies_out.launch(stream).map_err(|e| self.blame(e, |place| place.copy_out))
    }

    /// True where a step with the copies as they are makes no call for them when it begins.
    pub(super) fn copies_nothing(&self) -> bool {
        let (copies_in, copies_out) = (&self.copies_in, &self.copies_out);
        !copies_in.needs_launch() && !copies_in.needs_aim(self.graph) && !copies_out.needs_aim(self.graph)
    }

    /// True where copies were recorded, and it is not known in which graph.
    pub(super) const fn lacks_graph(&self) -> bool {
        self.graph.is_none() && (self.copies_in.is_recorded() || self.copies_out.is_recorded())
    }

    /// The step whose copies were checked last has begun.
    pub(super) fn accept_copies(&mut self) {
        self.overlap.accept();
    }

    /// The reservation of the windows, and where slot `i`'s is in it; nothing for a slot that has none.
    pub(super) fn window(&self, i: usize) -> Option<(&Arc<Reservation>, ByteSize)> {
        let mapped = self.places[i].action == Action::MAP;
        self.reservation.as_ref().filter(|_| mapped).map(|reservation| (reservation, self.windows[i].offset))
    }

    /// How many bytes that window has.
    pub(super) fn window_size(&self, i: usize) -> ByteSize {
        self.windows[i].size
    }

    /// The reservation of the windows.
    pub(super) const fn reservation(&self) -> Option<&Arc<Reservation>> {
        self.reservation.as_ref()
    }

    /// What makes slot `i`'s window hold `block`; nothing for a slot that has none.
    pub(super) fn entry(&self, i: usize, block: Option<Arc<Block>>) -> Option<RemapEntry> {
        let (reservation, offset) = self.window(i)?;
        Some(RemapEntry { reservation: Arc::clone(reservation), offset, block })
    }

    /// What empties every window that holds something.
    pub(super) fn emptying(&self) -> Vec<RemapEntry> {
        (0..self.places.len())
            .filter(|&i| self.held[i].is_some())
            .filter_map(|i| self.entry(i, None))
            .collect()
    }

    /// The slots that are mapped, in the order of their windows.
    pub(super) fn mapped(&self) -> impl Iterator<Item = usize> {
        (0..self.places.len()).filter(|&i| self.places[i].action == Action::MAP)
    }

    /// The failure of a copy, blaming the slot instead of the slice.
    pub(super) fn blame(&self, e: Error, slice: impl Fn(&Place) -> At) -> Error {
        let is = |at: u64| move |i: usize| i as u64 == at;
        let slot = e.entry.and_then(|at| self.places.iter().position(|p| slice(p).get().is_some_and(is(at))));
        Error { entry: slot.map(|i| i as u64), ..e }
    }

    /// True where a step may use memory of ours.
    pub(super) fn is_in_use(&self) -> bool {
        let routes = self.copies_in.has_route() || self.copies_out.has_route();
        self.used
            && (routes || self.reservation.is_some() || self.shadows.is_some() || self.permanent.is_some())
    }

    /// How many slots are served by `action`.
    pub(super) fn count(&self, action: Action) -> u64 {
        self.places.iter().filter(|place| place.action == action).count() as u64
    }

    /// What must stay until the last step has passed; the blocks stay with their mappings.
    pub(super) fn into_remains(self, token: Arc<()>) -> Remains {
        let routes = [self.copies_in.into_route(), self.copies_out.into_route()];
        Remains {
            _reservation: self.reservation,
            _shadows: self.shadows,
            _permanent: self.permanent,
            _routes: routes,
            _token: token,
        }
    }
}

fn reserve(device: &Device, plan: &Plan, access: &[Access]) -> Result<Option<Arc<Reservation>>> {
    if plan.windows.size.is_zero() {
        return Ok(None);
    }
    // Where the granule grows with the size, the whole needs a larger one than its parts.
    let size = device.round_up(plan.windows.size)?;
    device.reserve(size, Some(plan.windows.alignment), access, Owner::Library).map(Some)
}

fn allocate(device: &Device, plan: &Plan, access: &[Access]) -> Result<Option<Region>> {
    if plan.shadows.size.is_zero() {
        return Ok(None);
    }
    Arena::of(device).take(device, plan.shadows.size, plan.shadows.alignment, access).map(Some)
}

const OVERLAP: Error = Error::new(
    Kind::Overlap,
    Operation::Begin,
    "a buffer that is copied out to overlaps another one: what arrives would depend on the order",
);
const WRAPS: Error =
    Error::new(Kind::OutOfRange, Operation::Begin, "the buffer passes the end of the address space");
